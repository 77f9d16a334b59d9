// Tokens per second of all streams together, from a count per token.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"

namespace polykv {

// The rate over the last 2 s, or since the first token where that is less. Not thread-safe; no
// allocation.
class Throughput {
 public:
  void AddTokens(int32_t n, TimeUs now);  // REQUIRES: stamps do not go back
  double TokensPerSecond(TimeUs now) const;

 private:
  static constexpr TimeUs kBucketUs = 100'000;
  static constexpr int64_t kBuckets = 20;

  struct Bucket {
    int64_t number = -1;  // the bucket's time, in buckets
    int64_t n_tokens = 0;
  };
  std::array<Bucket, kBuckets + 1> buckets_{};  // ring; the newest may be incomplete
  TimeUs begin_ = -1;  // of the first token after 2 s without one; -1: none yet
  TimeUs last_ = -1;
};

}  // namespace polykv
