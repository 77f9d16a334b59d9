// The picture of the load that an admission verdict is made of.
#pragma once

#include "admission/judge.h"
#include "engine/state.h"

namespace polykv {

// The pool whose policy governs the sessions of `pool`: itself or its nearest ancestor with one.
// Null: none does.
const PoolNode* GoverningPoolOrNull(const EngineState& state, const PoolNode* pool);
// The same of the pool with that id; null, too, if there is no such pool.
const PoolNode* GoverningPoolOrNull(const EngineState& state, PoolId pool);

// The load that a verdict on one more session of a pool looks at.
struct LoadPicture {
  GovernedLoad governed;
  ServerLoad server;
};
// Walks all sessions.
LoadPicture PictureFor(const EngineState& state, const PoolNode& pool);

// A verdict on one more session of `pool`, now; `picture`: PictureFor it.
Verdict JudgeAdmission(const EngineState& state, const PoolNode& pool, const LoadPicture& picture,
                       const Applicant& applicant);

// The mean experienced rate of the decoding sessions that the policy of pool `governor` governs and
// that are not warming, by what they have done from `since` on; 0: there are none.
double GovernedMean(const EngineState& state, PoolId governor, TimeUs since = 0);

}  // namespace polykv
