// One call of the model: decode tokens first, then prompt tokens as planned.
#pragma once

#include "engine/state.h"

namespace polykv {

// Computes one step and handles what comes of it. False if there was nothing to compute, and
// nothing changed for those who wait.
bool RunModelStep(EngineState& state);

}  // namespace polykv
