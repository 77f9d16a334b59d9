// Whether a stream keeps to the tokens per second that it is to have at least.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace polykv {

// How far the stream's tokens are ahead of an even stream at its floor. What it is ahead counts up
// to one token, so that two rules are one: if every token comes within MaxGap of the one before,
// the mean over all tokens is at least the floor, and no gap is longer than 2 / floor. Not
// thread-safe.
class Pace {
 public:
  // `n` tokens came together, `gap` after the ones before. REQUIRES: floor_tps > 0.
  void AddTokens(int32_t n, TimeUs gap, double floor_tps);
  // The next gap will be longer by so much, by no doing of the engine's.
  void Skip(TimeUs duration) { ahead_us_ += static_cast<double>(duration); }

  // After the last token the next one may take so long; negative: it is late already.
  TimeUs MaxGap(double floor_tps) const;
  // The same of a stream that is as far ahead as counts: 2 / floor.
  static TimeUs LongestGap(double floor_tps);

 private:
  double ahead_us_ = 0;  // negative: behind, by what there is still to be made up for
};

}  // namespace polykv
