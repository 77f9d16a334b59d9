#pragma once

#include <cstdint>
#include <vector>

namespace polykv {

struct StepCostPlan {
  std::vector<int32_t> pools = {0, 16, 60};
  std::vector<int32_t> sessions = {0, 100};
  int32_t rounds = 7;
  int32_t round_ms = 300;
};

// The engine's own time for a step of four decoding streams beside so many pools and sessions that
// idle. A row for each pair: on the engine's own thread, as it serves, and by hand, where every
// step publishes a snapshot. Each the best of the rounds, which alternate between the pairs.
void MeasureStepCost(const StepCostPlan& plan);

}  // namespace polykv
