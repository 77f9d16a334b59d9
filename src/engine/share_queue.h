// Shares that are promised and not yet done.
#pragma once

#include <cstdint>
#include <deque>

#include "kv/model_backend.h"

namespace polykv {

// A share walks over its cells: one of a hundred thousand would hold up every stream that decodes.
// It is done in pieces, from position 0 on, where the model's memory allows that, else at once.
// The way to the model's cells for everybody else, so that nobody sees half a share. Engine thread
// only.
class ShareQueue {
 public:
  explicit ShareQueue(ModelBackend* backend) : backend_(backend) {}

  const ModelInfo& info() const { return backend_->info(); }

  // `to` is to hold the cells of `from` in [0, length) too. Those that are still on their way to
  // `from` come first. REQUIRES: as ModelBackend::ShareRange.
  void Share(SeqId from, SeqId to, Pos length);
  // The same with all `length` cells that `from` holds, as ModelBackend::CloneSequence.
  void Clone(SeqId from, SeqId to, Pos length);

  bool empty() const { return shares_.empty(); }
  // Whether cells are on their way to the sequence, and how many of its first `length` are there.
  bool Waits(SeqId to) const { return FindOrNull(to) != nullptr; }
  Pos Arrived(SeqId to, Pos length) const;
  // At most `n_cells` of the oldest share.
  void DoPiece(int32_t n_cells);

  // The model, once nothing is on its way from or to the sequence.
  ModelBackend& Settled(SeqId seq);
  Pos MinPos(SeqId seq) const;  // as if all were done

 private:
  struct PendingShare {
    SeqId from;
    SeqId to;
    Pos begin;
    Pos end;
  };

  bool CanWait() const;
  const PendingShare* FindOrNull(SeqId to) const;  // a sequence has one at most

  ModelBackend* backend_;
  std::deque<PendingShare> shares_;  // in their order, none is empty
};

}  // namespace polykv
