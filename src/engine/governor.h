// A pool with an admission policy governs its own sessions and those of the pools below it that
// have no policy themselves.
#pragma once

#include <map>

#include "admission/policy.h"
#include "admission/settle.h"
#include "base/types.h"

namespace polykv {

struct Governor {
  AdmissionPolicy policy;
  SettleTracker settle;
  bool floor_broken = false;  // as last told: its sessions' mean is under the target
  TimeUs judge_at = 0;        // when what the policy holds is judged again
};

using Governors = std::map<PoolId, Governor>;  // by the pool that has the policy

}  // namespace polykv
