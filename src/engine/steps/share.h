// Shares that are under way (engine/share_queue).
#pragma once

#include "engine/state.h"

namespace polykv {

// Whether all that the sequence is to hold is there, so that it may compute.
bool HasCells(const EngineState& state, SeqId seq);

// Does a part of what is under way; all of it if nobody decodes meanwhile.
void GoOnSharing(EngineState& state);

}  // namespace polykv
