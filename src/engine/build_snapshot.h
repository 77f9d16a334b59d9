#pragma once

#include <memory>

#include "engine/snapshot.h"
#include "engine/state.h"

namespace polykv {

// Engine thread only; costs time in the number of pools and sessions, so it is not for every step.
std::shared_ptr<const EngineSnapshot> BuildSnapshot(const EngineState& state, uint64_t version);

}  // namespace polykv
