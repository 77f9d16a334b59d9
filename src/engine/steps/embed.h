// Prompts into vectors: between two decode steps at most one batch of them.
#pragma once

#include "engine/state.h"

namespace polykv {

// Puts a request into the queue, or answers at once why it cannot be served.
void Enqueue(EngineState& state, SubmitEmbedding command);

// Computes the next batch in the order of arrival: as many whole prompts as fit, or a part of one
// where the model allows that. While requests run the batch has --polykv-prefill-chunk tokens, or
// the one prompt that cannot be divided. False if there was nothing to compute.
bool RunEmbedStep(EngineState& state);

// Cells that the next prompt of the queue still needs. They are not given to others, or long
// prompts would wait for ever.
int32_t NextEmbeddingCells(const EngineState& state);

// An ended embedding stays in the queue until SweepEmbeddings.
void Fail(EngineState& state, Embedding& embedding, Problem problem);
void Cancel(EngineState& state, Embedding& embedding);
void SweepEmbeddings(EngineState& state);

}  // namespace polykv
