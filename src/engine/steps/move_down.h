// Streams whose cells lie far up in the cache.
#pragma once

#include "engine/state.h"

namespace polykv {

// A step of the model passes over every cell below the highest one in use. When idle sessions have
// left the cache, the streams' own cells may still lie above the places where theirs were: moves
// those of one stream down, while there are many holes. A copy, so one per step.
void MoveOneStreamDown(EngineState& state);

}  // namespace polykv
