#include "base/clock.h"

#include <chrono>

namespace polykv {

TimeUs SteadyClock::NowUs() const {
  using std::chrono::duration_cast;
  return duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace polykv
