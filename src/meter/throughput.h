// Tokens per second of all streams together, from a count per token.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"

namespace polykv {

// As a stream's rate (meter/rate_window.h), over the steps of all: the shorter of the last 128
// steps and the last 2 s, but at least the last 4 steps if there were as many. It falls as soon as
// a step takes longer than usual, and to 0 when none has come for 2 s and for 4 usual ones. Not
// thread-safe; 2 KiB, no allocation.
class Throughput {
 public:
  // Several calls with one time are one step. A stream's first token is no decode step: it counts
  // as `n` = 0, as the beginning of a gap. REQUIRES: stamps do not go back.
  void AddTokens(int32_t n, TimeUs now);
  double TokensPerSecond(TimeUs now) const;

 private:
  static constexpr int64_t kSteps = 128;
  static constexpr int64_t kMinGaps = 4;
  static constexpr TimeUs kWindowUs = 2'000'000;

  struct Step {
    TimeUs at = 0;
    int64_t n_until = 0;  // tokens up to its end
  };
  const Step& Back(int64_t n) const {
    return steps_[static_cast<size_t>((count_ - 1 - n) % kSteps)];
  }
  int64_t Gaps() const;                 // that the rate is over
  bool IsSilent(TimeUs now) const;      // the streams have ended
  double StepUs(int64_t n_gaps) const;  // mean duration of the last ones

  std::array<Step, kSteps> steps_{};  // ring
  int64_t count_ = 0;                 // steps since the last silence
};

}  // namespace polykv
