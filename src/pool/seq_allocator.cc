#include "pool/seq_allocator.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {

SeqAllocator::SeqAllocator(SeqId first, int32_t count) : first_(first), count_(count) {
  free_.reserve(static_cast<size_t>(count));
  for (SeqId seq = first + count - 1; seq >= first; --seq) free_.push_back(seq);
}

std::optional<SeqId> SeqAllocator::Allocate() {
  if (free_.empty()) return std::nullopt;
  const SeqId seq = free_.back();
  free_.pop_back();
  return seq;
}

void SeqAllocator::Free(SeqId seq) {
  POLYKV_CHECK(seq >= first_ && seq < first_ + count_);
  POLYKV_CHECK(std::find(free_.begin(), free_.end(), seq) == free_.end());
  free_.push_back(seq);
}

}  // namespace polykv
