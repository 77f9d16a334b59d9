// Tells when there is work and nothing gets done.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/types.h"

namespace polykv {

class Watchdog {
 public:
  // Stalled: for `bound_us` there was work, and no progress. 0: never.
  explicit Watchdog(TimeUs bound_us) : bound_us_(bound_us) {}

  // One thread, again and again. `progress` changes with whatever gets done.
  void Look(uint64_t progress, bool has_work, TimeUs now) {
    if (!has_work || progress != progress_ || !waits_) since_ = now;
    waits_ = has_work;
    progress_ = progress;
    stalled_.store(bound_us_ > 0 && has_work && now - since_ >= bound_us_,
                   std::memory_order_relaxed);
  }

  bool stalled() const { return stalled_.load(std::memory_order_relaxed); }  // any thread

 private:
  const TimeUs bound_us_;
  uint64_t progress_ = 0;
  bool waits_ = false;  // there was work at the last look
  TimeUs since_ = 0;    // of the last progress, or of the first look at work
  std::atomic<bool> stalled_{false};
};

}  // namespace polykv
