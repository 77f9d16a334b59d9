// Pools: created, rebuilt, pinned, released.
#pragma once

#include "engine/state.h"

namespace polykv {

void HandleCreatePool(EngineState& state, CreatePool command);
void HandleChangePool(EngineState& state, ChangePool& command);

// Starts computing an evicted pool again. A problem if neither sequence nor cells can be had.
std::optional<Problem> RebuildPool(EngineState& state, const std::shared_ptr<PoolNode>& node);
// The next `n_tokens` of the pool are computed; answers those who wait when it is complete.
void AdvancePool(EngineState& state, Materialization& job, int32_t n_tokens);
// Takes everything back that the materialization did, with an answer to everybody who waits.
void FailPool(EngineState& state, Materialization& job, const Problem& problem);

// Frees the pool's cells and sequence; tokens and identity stay. REQUIRES: resident, not in use.
void EvictPool(EngineState& state, PoolNode& node);
// Takes the pool out of the tree at once; attached sequences go on.
void ReleasePool(EngineState& state, const std::shared_ptr<PoolNode>& node);

}  // namespace polykv
