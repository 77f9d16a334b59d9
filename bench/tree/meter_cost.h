#pragma once

#include <cstdint>

namespace polykv {

struct MeterCostPlan {
  int32_t tokens = 2'000'000;
  int32_t rounds = 7;
};

// What one decoded token costs the meters: its stream's rate, the rate of all, the histogram of
// waits, an admission that has not settled; and what one look at a stream's rate costs. A row for
// each, the best of the rounds.
void MeasureMeterCost(const MeterCostPlan& plan);

}  // namespace polykv
