// From the queue to a slot.
#pragma once

#include "engine/state.h"

namespace polykv {

// Puts a request into the queue, or answers at once why it cannot be served.
void Enqueue(EngineState& state, std::unique_ptr<GenerationRequest> request);

// Starts every waiting request for which a slot, a sequence and cells can be had, in the order of
// arrival; one that waits for its pool, its session or its slot lets others pass, one that waits
// for cells does not.
void StartWaiting(EngineState& state);

// Tells the client that its request holds a slot, once.
void Announce(EngineState& state, Generation& generation);

}  // namespace polykv
