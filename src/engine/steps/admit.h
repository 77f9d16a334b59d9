// From the queue to a slot.
#pragma once

#include "engine/state.h"

namespace polykv {

// Why no new work is taken at all: the server stops, or too much waits already.
std::optional<Problem> RefuseNewWork(const EngineState& state);

// A prompt of `n_prompt` tokens in a context of `n_ctx`, in llama-server's words.
Problem ExceedsContext(int32_t n_prompt, int32_t n_ctx);

// Puts a request into the queue, or answers at once why it cannot be served.
void Enqueue(EngineState& state, std::unique_ptr<GenerationRequest> request);

// Starts every waiting request for which a slot, a sequence and cells can be had, in the order of
// arrival; one that waits for its pool, its session or its slot lets others pass, one that waits
// for cells does not. None while a request is parked.
void StartWaiting(EngineState& state);

// Tells the client that its request holds a slot, once.
void Announce(EngineState& state, Generation& generation);

}  // namespace polykv
