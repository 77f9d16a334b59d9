// POST /polykv/pools and …/fork: which pool a request for one gets.
#pragma once

#include "engine/state.h"

namespace polykv {

// The pool that the command describes, made if none is equal to it; bad input changes nothing.
void HandleCreatePool(EngineState& state, CreatePool command);

}  // namespace polykv
