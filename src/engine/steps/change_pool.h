// Pools are pinned, evicted, flushed, released.
#pragma once

#include "engine/state.h"

namespace polykv {

void HandleChangePool(EngineState& state, ChangePool& command);

void PinPool(EngineState& state, PoolNode& node, const std::string& key, TimeUs until);

// Pins whose time is over go, and pools whose grace is; children before their parents.
void ReapPools(EngineState& state);

}  // namespace polykv
