#include "engine/sequence_cache.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace polykv {

void SequenceCache::Share(Sequence& sequence, const std::shared_ptr<PoolNode>& pool, Pos length) {
  POLYKV_CHECK(sequence.id != kNoSeq && sequence.tokens.empty());
  sequence.lease = pools_->Attach(pool, backend_->info().unified ? length : 0);
  backend_->ShareRange(pool->seq, sequence.id, 0, length);
  sequence.tokens.assign(pool->prefix.tokens.begin(), pool->prefix.tokens.begin() + length);
  private_cells_ += sequence.n_private();
}

ShareVerdict SequenceCache::MayShare(SeqId source, Pos length, Pos wanted,
                                     bool tokens_remain) const {
  const ModelInfo& info = backend_->info();
  if (info.sharing == Sharing::kOff) return {.reason = info.sharing_reason.c_str()};
  return ShareablePrefix({.sharing = info.sharing,
                          .n_swa = info.n_swa,
                          .length = length,
                          .min_pos = backend_->MinPos(source)},
                         wanted, tokens_remain);
}

void SequenceCache::Branch(PoolNode& pool, Pos length) {
  backend_->ShareRange(pool.parent->seq, pool.seq, 0, length);
  if (backend_->info().unified) {
    pools_->BeginOn(pool, pools_->Attach(pool.parent, length));
  } else {
    pools_->AddMaterialized(pool, length);
  }
}

void SequenceCache::Regain(PoolNode& pool, SeqId holder, Pos length) {
  backend_->ShareRange(holder, pool.seq, 0, length);
  if (backend_->info().unified) {
    pools_->BeginOnLeases(pool, length);
  } else {
    pools_->AddMaterialized(pool, length);
  }
}

void SequenceCache::Snapshot(Sequence& from, const std::shared_ptr<PoolNode>& pool) {
  backend_->CloneSequence(from.id, pool->seq);
  if (!backend_->info().unified) {
    pools_->AddMaterialized(*pool, pool->length());
    return;
  }
  private_cells_ -= from.n_private();
  from.lease = pools_->Snapshot(pool, std::move(from.lease));
}

void SequenceCache::ShareFrom(Sequence& from, Sequence& to, Pos length) {
  POLYKV_CHECK(to.id != kNoSeq && to.tokens.empty());
  POLYKV_CHECK(length > 0 && length <= from.n_tokens());
  backend_->ShareRange(from.id, to.id, 0, length);
  to.tokens.assign(from.tokens.begin(), from.tokens.begin() + length);
  to.adapters = from.adapters;
  if (!backend_->info().unified) {
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
  sequence.lease = pools_->Seal(std::move(sequence.lease), sequence.tokens);
}

void SequenceCache::Clone(Sequence& from, Sequence& to) {
  Clear(to);
  backend_->CloneSequence(from.id, to.id);
  to.tokens = from.tokens;
  to.adapters = from.adapters;
  if (!backend_->info().unified) {
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
  return FindResumePoint(sequence.checkpoints, {.n_common = n_common,
                                                .has_new_tokens = has_new_tokens,
                                                .min_pos = backend_->MinPos(sequence.id),
                                                .n_swa = backend_->info().n_swa});
}

Pos SequenceCache::Rewind(Sequence& sequence, const ResumePoint& point, Pos length) {
  POLYKV_CHECK(length >= 0 && length <= point.n_tokens && length <= sequence.n_tokens());
  bool done = true;
  if (point.checkpoint) {
    const Checkpoint& checkpoint = sequence.checkpoints[*point.checkpoint];
    done = backend_->LoadState(sequence.id, StateParts::kUnremovable, checkpoint.state->span());
  }
  done = done && (length == 0 || length == sequence.n_tokens() ||
                  backend_->RemoveRange(sequence.id, length, kToEnd));
  if (!done || length == 0) {
    length = 0;
    backend_->RemoveRange(sequence.id, 0, kToEnd);
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
  Result<int64_t> n_bytes = backend_->LoadSequence(sequence.id, n_tokens, path);
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

void SequenceCache::Clear(Sequence& sequence) {
  if (!sequence.tokens.empty()) Rewind(sequence, {}, 0);
  sequence.checkpoints.clear();
}

void SequenceCache::KeepFirst(Sequence& sequence, Pos length) {
  private_cells_ -= sequence.n_private();
  sequence.tokens.resize(static_cast<size_t>(length));
  if (length == 0) sequence.lease.Reset();
  if (sequence.lease.length() > length) sequence.lease.Shrink(length);
  private_cells_ += sequence.n_private();
}

void SequenceCache::AddCheckpoint(Sequence& sequence, int64_t task_id,
                                  const CheckpointLimits& limits) {
  MakeRoomForCheckpoint(sequence.checkpoints, limits, task_id, sequence.n_tokens());
  const size_t size = backend_->StateSize(sequence.id, StateParts::kUnremovable);
  auto state = std::make_shared<HostBytes>(size);
  if (state->size() != size) return;
  backend_->SaveState(sequence.id, StateParts::kUnremovable, state->span());
  sequence.checkpoints.push_back({.task_id = task_id,
                                  .n_tokens = sequence.n_tokens(),
                                  .min_pos = backend_->MinPos(sequence.id),
                                  .state = std::move(state)});
}

bool SequenceCache::Save(const Sequence& sequence, HostStore& store) const {
  if (sequence.tokens.empty() || store.Holds(sequence.tokens, sequence.adapters)) return false;
  const size_t size = backend_->StateSize(sequence.id, StateParts::kAll);
  SavedSequence* saved =
      store.AddOrNull(sequence.tokens, sequence.adapters, sequence.checkpoints, size);
  if (saved == nullptr) return false;
  backend_->SaveState(sequence.id, StateParts::kAll, saved->state.span());
  return true;
}

void SequenceCache::Load(Sequence& sequence, SavedSequence saved) {
  Clear(sequence);
  if (!backend_->LoadState(sequence.id, StateParts::kAll, saved.state.span())) {
    backend_->RemoveRange(sequence.id, 0, kToEnd);
    return;
  }
  sequence.tokens = std::move(saved.tokens);
  sequence.adapters = std::move(saved.adapters);
  sequence.checkpoints = std::move(saved.checkpoints);
  private_cells_ += sequence.n_private();
}

void SequenceCache::Shift(Sequence& sequence, Pos p0, Pos p1) {
  POLYKV_CHECK(sequence.lease.length() == 0);
  POLYKV_CHECK(p0 >= 0 && p0 <= p1 && p1 <= sequence.n_tokens());
  POLYKV_CHECK(backend_->RemoveRange(sequence.id, p0, p1));
  backend_->ShiftPositions(sequence.id, p1, kToEnd, p0 - p1);
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
  if (seq != kNoSeq) backend_->RemoveRange(seq, 0, kToEnd);
  return seq;
}

}  // namespace polykv
