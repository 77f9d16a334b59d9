#pragma once

#include <optional>
#include <vector>

#include "base/types.h"

namespace polykv {

// Hands out the sequence ids [first, first + count), each to one holder at a time.
class SeqAllocator {
 public:
  SeqAllocator(SeqId first, int32_t count);

  std::optional<SeqId> Allocate();  // nothing when all are out
  void Free(SeqId seq);             // REQUIRES: allocated here

  int32_t n_used() const { return count_ - static_cast<int32_t>(free_.size()); }
  int32_t count() const { return count_; }

 private:
  SeqId first_;
  int32_t count_;
  std::vector<SeqId> free_;
};

}  // namespace polykv
