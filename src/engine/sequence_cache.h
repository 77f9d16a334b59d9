// The one place that changes cells: model, token lists and the count of used cells move together.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/share_queue.h"
#include "kv/model_backend.h"
#include "pool/pool_tree.h"
#include "pool/share_rule.h"
#include "session/checkpoint_policy.h"
#include "session/saved_sequence.h"
#include "session/sequence.h"

namespace polykv {

// Engine thread only. Accounting is by ownership: a pool's cells count once, at the pool; a
// sequence accounts for its private cells alone.
class SequenceCache {
 public:
  // Keeps `saved` with room for a state of so many bytes and says where, for the state to be
  // written there; null: there is no room.
  using Place = std::function<SavedSequence*(SavedSequence saved, size_t state_size)>;
  // Likewise of what was kept before: gives it room for a shared state.
  using SharedPlace = std::function<SavedSequence*(size_t state_size)>;

  // `scratch`: a sequence of nobody's, empty between calls; kNoSeq: there is none.
  SequenceCache(ModelBackend* backend, PoolTree* pools, SeqId scratch)
      : shares_(backend), pools_(pools), scratch_(scratch) {}

  int32_t total() const { return shares_.info().n_ctx; }
  int32_t used() const { return pools_->cells() + private_cells_; }
  int32_t free() const { return total() - used(); }
  int32_t private_cells() const { return private_cells_; }

  // What is shared may arrive later than a call here returns. Everything here sees it as done; a
  // sequence that waits for cells must not compute.
  ShareQueue& shares() { return shares_; }
  const ShareQueue& shares() const { return shares_; }

  // Cells [0, length) of the pool become the sequence's too; metadata only. In a split cache it
  // gets a copy of its own, and its lease, of no length, keeps the pool in use.
  // REQUIRES: the sequence has an id and is empty; the pool is resident; 0 < length <= its length;
  // ShareablePrefix allows it.
  void Share(Sequence& sequence, const std::shared_ptr<PoolNode>& pool, Pos length);

  // Whether another sequence can share `wanted` of the `length` tokens that `source` holds
  // (pool/share_rule); with sharing off it cannot.
  ShareVerdict MayShare(SeqId source, Pos length, Pos wanted, bool tokens_remain) const;
  // The pool's cells [0, length) become its parent's, in a split cache a copy of them.
  // REQUIRES: the parent is resident; the pool materializes and nothing of it is there yet.
  void Branch(PoolNode& pool, Pos length);
  // The same with `holder`, a sequence that holds these very cells of a pool that was evicted (in a
  // split cache: any that holds the same tokens).
  void Regain(PoolNode& pool, SeqId holder, Pos length);
  // `pool`, whose tokens are those of `from`, becomes the owner of its cells, which both hold from
  // then on; in a split cache it gets a copy. REQUIRES: as Branch.
  void Snapshot(Sequence& from, const std::shared_ptr<PoolNode>& pool);
  // `to`, which is empty, holds the first `length` tokens of `from` too; in a split cache a copy.
  void ShareFrom(Sequence& from, Sequence& to, Pos length);

  // `to` gives up what it holds and holds what `from` holds: the same cells, or a copy of them in a
  // split cache.
  void Clone(Sequence& from, Sequence& to);
  // Cells that nobody else holds any more become the sequence's own again.
  void TakeBack(Sequence& sequence);
  // Cells that would be free if the sequence were cleared.
  static int32_t SoleCells(const Sequence& sequence) {
    return sequence.n_private() + PoolTree::SoleCells(sequence.lease);
  }

  // The sequence gives up what it holds for what the file holds, whose tokens are `tokens`
  // (ModelBackend::LoadSequence). A Problem changes nothing, but that what was shared is given up.
  // REQUIRES: there is room for the tokens.
  Result<int64_t> LoadFile(Sequence& sequence, std::vector<Token> tokens, const std::string& path);

  // What can be kept of the first `n_common` tokens, for a prompt that begins with them;
  // `has_new_tokens`: and goes on. Less than all of them where the memory cannot go back (recurrent
  // state, a window that has moved on) and no checkpoint helps.
  ResumePoint FindResume(const Sequence& sequence, Pos n_common, bool has_new_tokens) const;
  // The same for when it will have come back (MoveIn).
  ResumePoint FindResume(const SavedSequence& saved, Pos n_common, bool has_new_tokens) const;
  // Goes back to that point and leaves `length` tokens, at most point.n_tokens. Returns what is
  // left: `length`, or 0 if the memory refused. REQUIRES: `point` is the sequence's.
  Pos Rewind(Sequence& sequence, const ResumePoint& point, Pos length);
  // Keeps the first `length` tokens, or as many of them as the memory can; returns how many.
  Pos Trim(Sequence& sequence, Pos length);
  // Takes back the tokens behind `length`: a draft, which the latest batch has computed as its only
  // micro-batch, so that a window still has what the next token sees. False, and nothing changed:
  // the memory cannot.
  bool DropDraft(Sequence& sequence, Pos length);
  void Clear(Sequence& sequence);

  // Drops the tokens [p0, p1); those after them move down to p0 on.
  // REQUIRES: the memory can shift; the sequence shares no cell; 0 <= p0 <= p1 <= its length.
  void Shift(Sequence& sequence, Pos p0, Pos p1);

  // The model has computed these tokens at the end of the sequence.
  void Append(Sequence& sequence, std::span<const Token> tokens);

  // Saves what the memory needs to come back to the sequence as it is now. No checkpoint is made
  // if the system has no memory for it.
  void AddCheckpoint(Sequence& sequence, int64_t task_id, const CheckpointLimits& limits);

  // A copy of the sequence, shared cells included. False: it has no place.
  bool Save(const Sequence& sequence, const Place& place);
  // The sequence becomes what was saved, shared cells included, or empty if the model refuses.
  // REQUIRES: the cells are free or its own.
  void Load(Sequence& sequence, const SavedSequence& saved);

  // Moves what only the sequence holds out of the cache; it goes on holding what it shares, but
  // nothing where the memory cannot part with an end. False, and nothing changed, if there is no
  // place.
  bool MoveOut(Sequence& sequence, const Place& place);
  // What the sequence goes on holding after MoveOut leaves it too. False, and nothing changed, if
  // there is no place.
  bool MoveOutShared(Sequence& sequence, const SharedPlace& place);
  // The other way: the sequence is what it was. False, and nothing changed, if the model refuses.
  // REQUIRES: the cells are free; the sequence holds the first `begin` tokens, or nothing if
  // `saved` has them.
  bool MoveIn(Sequence& sequence, const SavedSequence& saved);

  // Whether what the pool does not share with its parent can be saved apart from that.
  bool CanSave(const PoolNode& pool) const;
  // A copy of that, without tokens. False: it has no place. REQUIRES: CanSave, resident.
  bool SavePool(const PoolNode& pool, const Place& place);
  // Whether `saved`, of this pool, is just what the pool, which materializes, does not hold.
  bool CanLoad(const PoolNode& pool, const SavedSequence& saved) const;
  // The pool is resident again. False, and nothing changed, if the model refuses.
  // REQUIRES: CanLoad; the cells are free.
  bool LoadPool(PoolNode& pool, const SavedSequence& saved);

  // The cells that only this sequence holds are written anew, in the lowest places that are free.
  // False, and nothing changed: this memory cannot, or the system has no memory for a copy.
  bool MoveDown(Sequence& sequence);

  // Frees what only the pool itself holds; returns its sequence id for reuse, kNoSeq if it had
  // none.
  SeqId DropPool(PoolNode& pool);

 private:
  ResumePoint FindResume(std::span<const Checkpoint> checkpoints, const ResumeInput& input,
                         Pos gap_end) const;
  Pos GapEnd(const SavedSequence& saved) const;
  static Pos SavedBegin(const PoolNode& pool);
  void KeepFirst(Sequence& sequence, Pos length);
  void SealPrivate(Sequence& sequence);  // so that others can hold its private cells
  // Whether the cells of a sequence behind some position can be saved and loaded without the
  // others.
  bool SavesEnds() const;
  // What stands for the cells [begin, end) of `seq`: itself, or the scratch sequence, until Hide.
  SeqId Expose(SeqId seq, Pos begin);
  void Hide(SeqId exposed);
  bool LoadBehind(SeqId seq, const SavedSequence& saved);

  ShareQueue shares_;  // the only way to the backend's cells
  PoolTree* pools_;
  const SeqId scratch_;
  int32_t private_cells_ = 0;
};

}  // namespace polykv
