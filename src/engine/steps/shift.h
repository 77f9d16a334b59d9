// Streams whose context is full.
#pragma once

#include "engine/state.h"

namespace polykv {

// With `n_tokens` in its sequence no position is left for a token after the next one.
bool ContextFull(const Generation& generation, int32_t n_tokens);
// Whether a full context makes room instead of ending: with --context-shift, and only for a plain
// request. Cells of a session or a pool are never moved, nor any that somebody else holds still.
bool MayShift(EngineState& state, const Generation& generation);

// Makes room in every decoding stream's full context that may shift.
void ShiftFullContexts(EngineState& state);

}  // namespace polykv
