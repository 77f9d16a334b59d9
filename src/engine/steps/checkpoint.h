// Checkpoints of sequences whose memory cannot go back, made while their prompts are computed.
#pragma once

#include "engine/state.h"

namespace polykv {

// At the end of a stretch of the prompt, plans the next one and makes the checkpoint that is due
// before it. REQUIRES: the generation is in kPrefill.
void EnterStretch(EngineState& state, Generation& generation);

}  // namespace polykv
