#include "engine/sequence_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace polykv {

void SequenceCache::Share(Sequence& sequence, const std::shared_ptr<PoolNode>& pool, Pos length) {
  POLYKV_CHECK(sequence.id != kNoSeq && sequence.tokens.empty());
  sequence.lease = pools_->Attach(pool, shares_.info().unified ? length : 0);
  shares_.Share(pool->seq, sequence.id, length);
  sequence.tokens.assign(pool->prefix.tokens.begin(), pool->prefix.tokens.begin() + length);
  private_cells_ += sequence.n_private();
}

ShareVerdict SequenceCache::MayShare(SeqId source, Pos length, Pos wanted,
                                     bool tokens_remain) const {
  const ModelInfo& info = shares_.info();
  if (info.sharing == Sharing::kOff) return {.reason = info.sharing_reason.c_str()};
  return ShareablePrefix({.sharing = info.sharing,
                          .n_swa = info.n_swa,
                          .length = length,
                          .min_pos = shares_.MinPos(source)},
                         wanted, tokens_remain);
}

void SequenceCache::Branch(PoolNode& pool, Pos length) {
  shares_.Share(pool.parent->seq, pool.seq, length);
  if (shares_.info().unified) {
    pools_->BeginOn(pool, pools_->Attach(pool.parent, length));
  } else {
    pools_->AddMaterialized(pool, length);
  }
}

void SequenceCache::Regain(PoolNode& pool, SeqId holder, Pos length) {
  shares_.Share(holder, pool.seq, length);
  if (shares_.info().unified) {
    pools_->BeginOnLeases(pool, length);
  } else {
    pools_->AddMaterialized(pool, length);
  }
}

void SequenceCache::Snapshot(Sequence& from, const std::shared_ptr<PoolNode>& pool) {
  shares_.Clone(from.id, pool->seq, from.n_tokens());
  if (!shares_.info().unified) {
    pools_->AddMaterialized(*pool, pool->length());
    return;
  }
  private_cells_ -= from.n_private();
  from.lease = pools_->Snapshot(pool, std::move(from.lease));
}

void SequenceCache::ShareFrom(Sequence& from, Sequence& to, Pos length) {
  POLYKV_CHECK(to.id != kNoSeq && to.tokens.empty());
  POLYKV_CHECK(length > 0 && length <= from.n_tokens());
  shares_.Share(from.id, to.id, length);
  to.tokens.assign(from.tokens.begin(), from.tokens.begin() + length);
  to.origin = from.origin;
  if (!shares_.info().unified) {
    private_cells_ += length;
    return;
  }
  SealPrivate(from);
  to.lease = from.lease.Another();
  to.lease.Shrink(length);
}

void SequenceCache::SealPrivate(Sequence& sequence) {
  if (sequence.n_private() == 0) return;
  private_cells_ -= sequence.n_private();
  sequence.lease = pools_->Seal(std::move(sequence.lease), sequence.tokens, sequence.origin);
}

void SequenceCache::Clone(Sequence& from, Sequence& to) {
  Clear(to);
  shares_.Clone(from.id, to.id, from.n_tokens());
  to.tokens = from.tokens;
  to.origin = from.origin;
  to.gap_end = from.gap_end;
  if (!shares_.info().unified) {
    private_cells_ += to.n_private();
    return;
  }
  SealPrivate(from);
  to.lease = from.lease.Another();
}

void SequenceCache::TakeBack(Sequence& sequence) {
  private_cells_ -= sequence.n_private();
  sequence.lease = pools_->Unseal(std::move(sequence.lease));
  private_cells_ += sequence.n_private();
}

ResumePoint SequenceCache::FindResume(const Sequence& sequence, Pos n_common,
                                      bool has_new_tokens) const {
  POLYKV_CHECK(n_common >= 0 && n_common <= sequence.n_tokens());
  if (n_common == 0) return {};
  return FindResume(sequence.checkpoints,
                    {.n_common = n_common,
                     .has_new_tokens = has_new_tokens,
                     .min_pos = shares_.MinPos(sequence.id),
                     .n_swa = shares_.info().n_swa},
                    sequence.gap_end);
}

ResumePoint SequenceCache::FindResume(const SavedSequence& saved, Pos n_common,
                                      bool has_new_tokens) const {
  if (n_common == 0) return {};
  return FindResume(saved.checkpoints,
                    {.n_common = n_common,
                     .has_new_tokens = has_new_tokens,
                     .min_pos = saved.min_pos,
                     .n_swa = shares_.info().n_swa},
                    GapEnd(saved));
}

ResumePoint SequenceCache::FindResume(std::span<const Checkpoint> checkpoints,
                                      const ResumeInput& input, Pos gap_end) const {
  if (gap_end == 0) return FindResumePoint(checkpoints, input);
  ResumeInput behind_gap = input;
  behind_gap.min_pos = std::max(input.min_pos, gap_end);
  const Pos next = input.n_common - (input.has_new_tokens ? 0 : 1);
  if (next + 1 - shares_.info().saved_window >= behind_gap.min_pos) {
    return {.n_tokens = input.n_common, .valid_until = input.n_common};
  }
  behind_gap.n_swa = shares_.info().saved_window;
  return FindResumePoint(checkpoints, behind_gap);
}

Pos SequenceCache::GapEnd(const SavedSequence& saved) const {
  const auto n_tokens = static_cast<Pos>(saved.tokens.size());
  const Pos window = shares_.info().saved_window;
  return window > 0 ? std::max(0, n_tokens - window) : 0;
}

Pos SequenceCache::Rewind(Sequence& sequence, const ResumePoint& point, Pos length) {
  POLYKV_CHECK(length >= 0 && length <= point.n_tokens && length <= sequence.n_tokens());
  bool done = true;
  if (point.checkpoint) {
    const Checkpoint& checkpoint = sequence.checkpoints[*point.checkpoint];
    done = shares_.Settled(sequence.id)
               .LoadState(sequence.id, StateParts::kUnremovable, checkpoint.state->span());
  }
  done = done && (length == 0 || length == sequence.n_tokens() ||
                  shares_.Settled(sequence.id).RemoveRange(sequence.id, length, kToEnd));
  if (!done || length == 0) {
    length = 0;
    shares_.Settled(sequence.id).RemoveRange(sequence.id, 0, kToEnd);
  }
  KeepFirst(sequence, length);
  std::erase_if(sequence.checkpoints, [&](const Checkpoint& checkpoint) {
    return !done || checkpoint.last_pos() > point.valid_until;
  });
  return length;
}

Result<int64_t> SequenceCache::LoadFile(Sequence& sequence, std::vector<Token> tokens,
                                        const std::string& path) {
  if (sequence.lease.length() > 0) Clear(sequence);
  const auto n_tokens = static_cast<int32_t>(tokens.size());
  Result<int64_t> n_bytes = shares_.Settled(sequence.id).LoadSequence(sequence.id, n_tokens, path);
  if (!n_bytes.ok()) return n_bytes;
  private_cells_ += n_tokens - sequence.n_tokens();
  sequence.tokens = std::move(tokens);
  sequence.checkpoints.clear();
  return n_bytes;
}

Pos SequenceCache::Trim(Sequence& sequence, Pos length) {
  if (length == sequence.n_tokens()) return length;
  const ResumePoint point = FindResume(sequence, length, /*has_new_tokens=*/true);
  return Rewind(sequence, point, point.n_tokens);
}

bool SequenceCache::DropDraft(Sequence& sequence, Pos length) {
  if (length == sequence.n_tokens()) return true;
  if (!shares_.Settled(sequence.id).RemoveRange(sequence.id, length, kToEnd)) return false;
  KeepFirst(sequence, length);
  return true;
}

void SequenceCache::Clear(Sequence& sequence) {
  if (!sequence.tokens.empty()) Rewind(sequence, {}, 0);
  sequence.checkpoints.clear();
}

void SequenceCache::KeepFirst(Sequence& sequence, Pos length) {
  private_cells_ -= sequence.n_private();
  sequence.tokens.resize(static_cast<size_t>(length));
  if (length == 0) {
    sequence.lease.Reset();
    sequence.gap_end = 0;
  }
  if (sequence.lease.length() > length) sequence.lease.Shrink(length);
  private_cells_ += sequence.n_private();
}

void SequenceCache::AddCheckpoint(Sequence& sequence, int64_t task_id,
                                  const CheckpointLimits& limits) {
  MakeRoomForCheckpoint(sequence.checkpoints, limits, task_id, sequence.n_tokens());
  const size_t size = shares_.Settled(sequence.id).StateSize(sequence.id, StateParts::kUnremovable);
  auto state = std::make_shared<HostBytes>(size);
  if (state->size() != size) return;
  shares_.Settled(sequence.id).SaveState(sequence.id, StateParts::kUnremovable, state->span());
  sequence.checkpoints.push_back({.task_id = task_id,
                                  .n_tokens = sequence.n_tokens(),
                                  .min_pos = shares_.MinPos(sequence.id),
                                  .state = std::move(state)});
}

bool SequenceCache::Save(const Sequence& sequence, const Place& place) {
  SavedSequence* saved =
      place({.tokens = sequence.tokens,
             .min_pos = shares_.MinPos(sequence.id),
             .origin = sequence.origin,
             .checkpoints = sequence.checkpoints},
            shares_.Settled(sequence.id).StateSize(sequence.id, StateParts::kAll));
  if (saved == nullptr) return false;
  shares_.Settled(sequence.id).SaveState(sequence.id, StateParts::kAll, saved->state.span());
  return true;
}

void SequenceCache::Load(Sequence& sequence, const SavedSequence& saved) {
  Clear(sequence);
  MoveIn(sequence, saved);
  sequence.gap_end = 0;  // llama-server takes the lowest position at its word
}

bool SequenceCache::MoveOut(Sequence& sequence, const Place& place) {
  TakeBack(sequence);
  const Pos begin = SavesEnds() ? sequence.lease.length() : 0;
  const bool has_cells = sequence.n_tokens() > begin;
  const SeqId exposed = Expose(sequence.id, begin);
  SavedSequence* saved =
      place({.tokens = sequence.tokens,
             .begin = begin,
             .min_pos = shares_.MinPos(sequence.id),
             .origin = sequence.origin,
             .checkpoints = sequence.checkpoints},
            has_cells ? shares_.Settled(exposed).StateSize(exposed, StateParts::kAll) : 0);
  if (saved != nullptr && has_cells) {
    shares_.Settled(exposed).SaveState(exposed, StateParts::kAll, saved->state.span());
  }
  Hide(exposed);
  if (saved == nullptr) return false;
  POLYKV_CHECK(shares_.Settled(sequence.id).RemoveRange(sequence.id, begin, kToEnd));
  KeepFirst(sequence, begin);
  sequence.checkpoints.clear();
  return true;
}

bool SequenceCache::MoveOutShared(Sequence& sequence, const SharedPlace& place) {
  SavedSequence* const saved =
      place(shares_.Settled(sequence.id).StateSize(sequence.id, StateParts::kAll));
  if (saved == nullptr) return false;
  POLYKV_CHECK(sequence.n_tokens() == saved->begin && saved->begin > 0);
  shares_.Settled(sequence.id).SaveState(sequence.id, StateParts::kAll, saved->shared_state.span());
  Clear(sequence);
  return true;
}

bool SequenceCache::MoveIn(Sequence& sequence, const SavedSequence& saved) {
  const bool alone = sequence.tokens.empty() && saved.begin > 0;
  POLYKV_CHECK(sequence.n_tokens() == saved.begin || (alone && saved.is_whole()));
  bool loaded = !alone || shares_.Settled(sequence.id)
                              .LoadState(sequence.id, StateParts::kAll, saved.shared_state.span());
  loaded = loaded && LoadBehind(sequence.id, saved);
  if (!loaded && alone) shares_.Settled(sequence.id).RemoveRange(sequence.id, 0, kToEnd);
  if (!loaded) return false;
  private_cells_ += static_cast<int32_t>(saved.tokens.size()) - sequence.n_tokens();
  sequence.tokens = saved.tokens;
  sequence.origin = saved.origin;
  sequence.checkpoints = saved.checkpoints;
  sequence.gap_end = GapEnd(saved);
  return true;
}

bool SequenceCache::MoveDown(Sequence& sequence) {
  const ModelInfo& info = shares_.info();
  const bool exact =
      info.unified && info.sharing == Sharing::kAnyPosition && info.saved_window == 0;
  if (!exact || (sequence.lease.length() > 0 && !SavesEnds())) return false;
  SavedSequence moved;
  const auto place = [&moved](SavedSequence saved, size_t state_size) -> SavedSequence* {
    moved = std::move(saved);
    moved.state = HostBytes(state_size);
    return moved.state.size() == state_size ? &moved : nullptr;
  };
  if (!MoveOut(sequence, place)) return false;
  POLYKV_CHECK(MoveIn(sequence, moved));  // into cells that have just come free
  return true;
}

bool SequenceCache::CanSave(const PoolNode& pool) const {
  const ModelInfo& info = shares_.info();
  if (info.saved_window == 0) return SavedBegin(pool) == 0 || SavesEnds();
  return SavedBegin(pool) == 0 && info.n_swa > 0;  // the lowest position tells what is missing
}

bool SequenceCache::SavePool(const PoolNode& pool, const Place& place) {
  POLYKV_CHECK(CanSave(pool) && pool.residency == Residency::kResident);
  const Pos begin = SavedBegin(pool);
  const SeqId exposed = Expose(pool.seq, begin);
  SavedSequence* saved =
      place({.begin = begin}, shares_.Settled(exposed).StateSize(exposed, StateParts::kAll));
  if (saved != nullptr)
    shares_.Settled(exposed).SaveState(exposed, StateParts::kAll, saved->state.span());
  Hide(exposed);
  return saved != nullptr;
}

bool SequenceCache::CanLoad(const PoolNode& pool, const SavedSequence& saved) const {
  if (pool.residency != Residency::kMaterializing || saved.begin != pool.shared_len) return false;
  return pool.n_materialized == pool.shared_len || !shares_.info().unified;
}

bool SequenceCache::LoadPool(PoolNode& pool, const SavedSequence& saved) {
  POLYKV_CHECK(CanLoad(pool, saved));
  if (!LoadBehind(pool.seq, saved)) return false;
  pools_->AddMaterialized(pool, pool.length() - pool.n_materialized);
  return true;
}

Pos SequenceCache::SavedBegin(const PoolNode& pool) {
  return pool.base.node() == pool.parent.get() ? pool.shared_len : 0;
}

bool SequenceCache::SavesEnds() const {
  const ModelInfo& info = shares_.info();
  const bool has_ends = info.sharing == Sharing::kAnyPosition || info.sharing == Sharing::kWindow;
  return scratch_ != kNoSeq && info.unified && info.removes_ends && has_ends;
}

SeqId SequenceCache::Expose(SeqId seq, Pos begin) {
  if (begin == 0) return seq;
  shares_.Settled(seq).ShareRange(seq, scratch_, begin, kToEnd);
  return scratch_;
}

void SequenceCache::Hide(SeqId exposed) {
  if (exposed == scratch_) shares_.Settled(scratch_).RemoveRange(scratch_, 0, kToEnd);
}

bool SequenceCache::LoadBehind(SeqId seq, const SavedSequence& saved) {
  if (saved.state.size() == 0) return true;
  const SeqId target = saved.begin == 0 ? seq : scratch_;
  const bool loaded =
      shares_.Settled(target).LoadState(target, StateParts::kAll, saved.state.span());
  if (loaded && target != seq) {
    shares_.Settled(seq).ShareRange(target, seq, saved.begin, kToEnd);
  }
  if (!loaded || target != seq) shares_.Settled(target).RemoveRange(target, 0, kToEnd);
  return loaded;
}

void SequenceCache::Shift(Sequence& sequence, Pos p0, Pos p1) {
  POLYKV_CHECK(sequence.lease.length() == 0);
  POLYKV_CHECK(p0 >= 0 && p0 <= p1 && p1 <= sequence.n_tokens());
  POLYKV_CHECK(shares_.Settled(sequence.id).RemoveRange(sequence.id, p0, p1));
  shares_.Settled(sequence.id).ShiftPositions(sequence.id, p1, kToEnd, p0 - p1);
  sequence.tokens.erase(sequence.tokens.begin() + p0, sequence.tokens.begin() + p1);
  sequence.checkpoints.clear();
  private_cells_ -= p1 - p0;
}

void SequenceCache::Append(Sequence& sequence, std::span<const Token> tokens) {
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  private_cells_ += static_cast<int32_t>(tokens.size());
}

SeqId SequenceCache::DropPool(PoolNode& pool) {
  const SeqId seq = pools_->DropCells(pool);
  if (seq != kNoSeq) shares_.Settled(seq).RemoveRange(seq, 0, kToEnd);
  return seq;
}

}  // namespace polykv
