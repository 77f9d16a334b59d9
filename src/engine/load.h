// The picture of the load that an admission verdict is made of.
#pragma once

#include "admission/judge.h"
#include "engine/state.h"

namespace polykv {

// The pool whose policy governs the sessions of `pool`: itself or its nearest ancestor with one.
// Null: none does.
const PoolNode* GoverningPoolOrNull(const EngineState& state, const PoolNode* pool);

// A verdict on one more session of `pool`, now.
Verdict JudgeAdmission(const EngineState& state, const PoolNode& pool, const Applicant& applicant);

// The mean experienced rate of the decoding sessions that the policy of pool `governor` governs and
// that are not warming; 0: there are none.
double GovernedMean(const EngineState& state, PoolId governor);

// Sessions that the pool's policy, if it has any, or the pool alone counts.
GovernedLoad LoadOf(const EngineState& state, const PoolNode& pool);
ServerLoad LoadOfServer(const EngineState& state);

}  // namespace polykv
