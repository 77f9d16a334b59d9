// The tokens-per-second floors of the streams that decode, and what they leave room for.
#pragma once

#include <optional>

#include "engine/planner.h"
#include "engine/state.h"

namespace polykv {

// Tokens per second that the stream's policy asks for; 0: it is under none.
double FloorOf(const EngineState& state, const Generation& generation);

// Whether there are policies, and the pool's sessions are under none; kNoPool: under none.
bool IsOutside(const EngineState& state, PoolId pool);

// What a step with `decode` may take; none: no stream with a floor decodes. `dues`: of what the
// step is to compute beside the streams.
std::optional<StepRoom> RoomBeside(const EngineState& state, const StepShape& decode,
                                   const PrefillDues& dues);

// The same for something that is done between two steps: the next one has to fit too.
std::optional<StepRoom> RoomBetween(const EngineState& state, const PrefillDues& dues);

// A step of that shape, of it `decode` for the streams that decode, has taken `us`.
void NoteStep(EngineState& state, const StepShape& shape, const StepShape& decode, TimeUs us);
// Likewise, of embeddings alone.
void NoteEmbedStep(EngineState& state, const StepShape& shape, TimeUs us);

// Whether `n_bytes` of the model's state can be copied now without holding up such a stream.
bool MayCopy(const EngineState& state, int64_t n_bytes);

}  // namespace polykv
