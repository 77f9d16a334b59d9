// The admission gate: new sessions of pools with an enforced policy start only while its floor
// holds.
#pragma once

#include "engine/state.h"

namespace polykv {

enum class Gate {
  kOpen,
  kHeld,      // waits: for an admission to settle, or in the pool's queue
  kAnswered,  // was refused and has its answer
};

// Tokens that the policy over the request's pool, or else over its session's, lets it generate;
// none: as many as it asks for.
std::optional<int32_t> MostTokens(const EngineState& state, const GenerationRequest& request);

// Asks for a request that wants to start on `pool`; a session that was admitted before passes.
Gate PassGate(EngineState& state, Generation& generation, const PoolNode& pool);

// A request starts: its session is admitted, and what that costs others is measured.
void CountAdmission(EngineState& state, const Generation& generation);
// It has decoded `n_tokens` more; and is forgotten.
void CountTokens(EngineState& state, const Session& session, int32_t n_tokens);
void EndAdmission(EngineState& state, const Session& session);

// Once per step: what has settled by now is settled.
void SettleAdmissions(EngineState& state);

void HandleSetAdmission(EngineState& state, SetAdmission& command);
void HandleAskCapacity(EngineState& state, AskCapacity& command);

}  // namespace polykv
