// The one place that changes cells: model, token lists and the count of used cells move together.
#pragma once

#include <memory>
#include <span>

#include "kv/model_backend.h"
#include "pool/pool_tree.h"
#include "session/sequence.h"

namespace polykv {

// Engine thread only. Accounting is by ownership: a pool's cells count once, at the pool; a
// sequence accounts for its private cells alone.
class SequenceCache {
 public:
  SequenceCache(ModelBackend* backend, PoolTree* pools) : backend_(backend), pools_(pools) {}

  int32_t total() const { return backend_->info().n_ctx; }
  int32_t used() const { return pools_->cells() + private_cells_; }
  int32_t free() const { return total() - used(); }
  int32_t private_cells() const { return private_cells_; }

  // Cells [0, length) of the pool become the sequence's; metadata only.
  // REQUIRES: the sequence has an id and is empty; the pool is resident; 0 < length <= its length.
  void Share(Sequence& sequence, const std::shared_ptr<PoolNode>& pool, Pos length);

  // `to` gives up what it holds and holds what `from` holds: the same cells, or a copy of them in a
  // split cache.
  void Clone(Sequence& from, Sequence& to);
  // Cells that nobody else holds any more become the sequence's own again.
  void TakeBack(Sequence& sequence);
  // Cells that would be free if the sequence were cleared.
  static int32_t SoleCells(const Sequence& sequence) {
    return sequence.n_private() + PoolTree::SoleCells(sequence.lease);
  }

  // Keeps the first `length` tokens. Returns what is left: `length`, or 0 where the memory cannot
  // go back to that point (recurrent state, a window that has moved on).
  Pos Trim(Sequence& sequence, Pos length);
  void Clear(Sequence& sequence) { Trim(sequence, 0); }

  // Drops the tokens [p0, p1); those after them move down to p0 on.
  // REQUIRES: the memory can shift; the sequence shares no cell; 0 <= p0 <= p1 <= its length.
  void Shift(Sequence& sequence, Pos p0, Pos p1);

  // The model has computed these tokens at the end of the sequence.
  void Append(Sequence& sequence, std::span<const Token> tokens);

  // Frees what only the pool itself holds; returns its sequence id for reuse, kNoSeq if it had
  // none.
  SeqId DropPool(PoolNode& pool);

 private:
  bool CanTrim(const Sequence& sequence, Pos length) const;

  ModelBackend* backend_;
  PoolTree* pools_;
  int32_t private_cells_ = 0;
};

}  // namespace polykv
