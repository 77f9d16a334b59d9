// Which decoding streams let steps pass so that others come back over their floor. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace polykv {

struct StreamRate {
  int32_t slot_id = 0;
  double tps = 0;        // experienced; 0: not settled yet
  double floor_tps = 0;  // 0: it is outside of every policy
};

// Whether a stream with a settled rate is under its floor.
bool AnyUnderFloor(std::span<const StreamRate> streams);

// For each stream whether it skips the step. Nobody does unless somebody is under its floor. Then
// streams outside of every policy decode in one step of four, in turns; and streams more than 25 %
// over their floor skip until they are not, if there are none outside, or if that has not helped:
// somebody has been under its floor for `under_for`, 2 s or more.
std::vector<bool> PlanThrottle(std::span<const StreamRate> streams, uint64_t step,
                               TimeUs under_for);

}  // namespace polykv
