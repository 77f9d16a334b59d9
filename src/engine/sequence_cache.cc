#include "engine/sequence_cache.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {

void SequenceCache::Share(Sequence& sequence, const std::shared_ptr<PoolNode>& pool, Pos length) {
  POLYKV_CHECK(sequence.id != kNoSeq && sequence.tokens.empty());
  sequence.lease = pools_->Attach(pool, length);
  backend_->ShareRange(pool->seq, sequence.id, 0, length);
  sequence.tokens.assign(pool->prefix.tokens.begin(), pool->prefix.tokens.begin() + length);
}

void SequenceCache::Clone(Sequence& from, Sequence& to) {
  Clear(to);
  backend_->CloneSequence(from.id, to.id);
  to.tokens = from.tokens;
  if (!backend_->info().unified) {
    private_cells_ += to.n_private();
    return;
  }
  if (from.n_private() > 0) {
    private_cells_ -= from.n_private();
    from.lease = pools_->Seal(std::move(from.lease), from.tokens);
  }
  to.lease = from.lease.Another();
}

void SequenceCache::TakeBack(Sequence& sequence) {
  private_cells_ -= sequence.n_private();
  sequence.lease = pools_->Unseal(std::move(sequence.lease));
  private_cells_ += sequence.n_private();
}

bool SequenceCache::CanTrim(const Sequence& sequence, Pos length) const {
  const int32_t window = backend_->info().n_swa;
  return window == 0 || backend_->MinPos(sequence.id) <= std::max(0, length - window);
}

Pos SequenceCache::Trim(Sequence& sequence, Pos length) {
  POLYKV_CHECK(length >= 0 && length <= sequence.n_tokens());
  if (length == sequence.n_tokens()) return length;
  if (length > 0 &&
      (!CanTrim(sequence, length) || !backend_->RemoveRange(sequence.id, length, kToEnd))) {
    length = 0;
  }
  if (length == 0) backend_->RemoveRange(sequence.id, 0, kToEnd);
  private_cells_ -= sequence.n_private();
  sequence.tokens.resize(static_cast<size_t>(length));
  if (sequence.lease.length() > length) sequence.lease.Shrink(length);
  private_cells_ += sequence.n_private();
  return length;
}

void SequenceCache::Shift(Sequence& sequence, Pos p0, Pos p1) {
  POLYKV_CHECK(sequence.lease.length() == 0);
  POLYKV_CHECK(p0 >= 0 && p0 <= p1 && p1 <= sequence.n_tokens());
  POLYKV_CHECK(backend_->RemoveRange(sequence.id, p0, p1));
  backend_->ShiftPositions(sequence.id, p1, kToEnd, p0 - p1);
  sequence.tokens.erase(sequence.tokens.begin() + p0, sequence.tokens.begin() + p1);
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
