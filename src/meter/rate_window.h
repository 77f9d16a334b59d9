// Experienced tokens per second of one stream: what its client sees, from the engine's token
// stamps.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"

namespace polykv {

// The rate over the shorter of the last 128 tokens and the last 2 s, but at least the last 4 gaps,
// and never above 1 / (time since the last token), so that a stall shows at once. The first token
// of a request is no decode step: its stamp only starts the first gap. Not thread-safe. 1 KiB, no
// allocation.
class RateWindow {
 public:
  void AddToken(TimeUs now) { AddTokens(1, now); }
  // `n` tokens that came together: they count as spread evenly since the one before them.
  void AddTokens(int32_t n, TimeUs now);  // REQUIRES: stamps do not go back
  // The stream was held up for so long by no doing of its own: as if its tokens had come later.
  void Skip(TimeUs duration);
  void Reset() { count_ = 0; }

  // Time since the last token; 0 before the first one.
  TimeUs SinceLast(TimeUs now) const { return count_ == 0 ? 0 : now - Stamp(0); }

  // Tokens per second; 0 while there are fewer than 4 gaps ("warming"). Gaps that began before
  // `since` do not count.
  double TokensPerSecond(TimeUs now, TimeUs since = 0) const;

 private:
  static constexpr int64_t kTokens = 128;  // spec §5
  static constexpr int64_t kMinGaps = 4;
  static constexpr TimeUs kWindowUs = 2'000'000;

  TimeUs Stamp(int64_t back) const {
    return stamps_[static_cast<size_t>((count_ - 1 - back) % kTokens)];
  }

  std::array<TimeUs, kTokens> stamps_{};  // ring
  int64_t count_ = 0;
};

}  // namespace polykv
