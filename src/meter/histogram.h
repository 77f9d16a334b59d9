// How often something took how long, in buckets that never change.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace polykv {

// From 1 ms to 100 s. Not thread-safe; no allocation.
class Histogram {
 public:
  static constexpr std::array<TimeUs, 16> kBoundsUs = {
      1'000,   2'000,     5'000,     10'000,    20'000,     50'000,     100'000,    200'000,
      500'000, 1'000'000, 2'000'000, 5'000'000, 10'000'000, 20'000'000, 50'000'000, 100'000'000};

  void Add(TimeUs duration, int64_t n = 1) {  // `n` times
    size_t i = 0;
    while (i < kBoundsUs.size() && duration > kBoundsUs[i]) ++i;
    counts_[i] += n;
    sum_us_ += duration * n;
  }

  // How many took at most kBoundsUs[i], by i; and all.
  std::array<int64_t, kBoundsUs.size() + 1> UpTo() const {
    std::array<int64_t, kBoundsUs.size() + 1> up_to{};
    int64_t n = 0;
    for (size_t i = 0; i < counts_.size(); ++i) up_to[i] = n += counts_[i];
    return up_to;
  }
  TimeUs sum_us() const { return sum_us_; }

 private:
  std::array<int64_t, kBoundsUs.size() + 1>
      counts_{};  // by bucket; the last one is longer than all
  TimeUs sum_us_ = 0;
};

// How long streams wait: for their first token, the queue included, and between two tokens.
struct LatencyMeters {
  Histogram first_token;
  Histogram inter_token;
};

}  // namespace polykv
