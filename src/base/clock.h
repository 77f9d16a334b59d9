// Time is a parameter: nothing outside base/ and app/ asks the operating system what time it is.
#pragma once

#include <atomic>

#include "base/types.h"

namespace polykv {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeUs NowUs() const = 0;  // monotonic; any thread
};

class SteadyClock final : public Clock {
 public:
  TimeUs NowUs() const override;
};

// A clock that moves only when told to.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(TimeUs start_us = 1'000'000) : now_us_(start_us) {}
  TimeUs NowUs() const override { return now_us_.load(std::memory_order_relaxed); }
  void AdvanceUs(TimeUs delta_us) { now_us_.fetch_add(delta_us, std::memory_order_relaxed); }

 private:
  std::atomic<TimeUs> now_us_;
};

}  // namespace polykv
