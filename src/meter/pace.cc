#include "meter/pace.h"

#include <algorithm>

namespace polykv {
namespace {

constexpr double kMaxBehindUs = 2e6;  // as long as the rate window looks back

double Period(double floor_tps) { return 1e6 / floor_tps; }

}  // namespace

void Pace::AddTokens(int32_t n, TimeUs gap, double floor_tps) {
  const double period = Period(floor_tps);
  ahead_us_ += n * period - static_cast<double>(gap);
  ahead_us_ = std::clamp(ahead_us_, -kMaxBehindUs, period);
}

TimeUs Pace::MaxGap(double floor_tps) const {
  return static_cast<TimeUs>(std::min(ahead_us_, Period(floor_tps)) + Period(floor_tps));
}

TimeUs Pace::LongestGap(double floor_tps) { return static_cast<TimeUs>(2 * Period(floor_tps)); }

}  // namespace polykv
