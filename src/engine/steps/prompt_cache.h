// llama-server's prompt cache: what slots held, kept in host memory. Sessions are not part of it.
#pragma once

#include <span>

#include "engine/state.h"

namespace polykv {

// Saves what the free slot holds and gives it, if there is one, the saved sequence that helps
// `prompt`, whose cells will be of `origin`, more. Without one the slot stays as it is.
void RefreshSlot(EngineState& state, Slot& slot, std::span<const Token> prompt,
                 const CellOrigin& origin);

// Saves every slot's own sequence that no request works on and, if the configuration says so,
// clears it. For after the start of a request.
void SaveIdleSlots(EngineState& state);

}  // namespace polykv
