// Speculation: drafts go into a step behind the tokens they follow; what the model does not agree
// with is taken back.
#pragma once

#include <cstdint>

#include "engine/state.h"

namespace polykv {

// Drafts for the streams that decode, as far as cells and batch reach without harm to anybody.
void DraftAhead(EngineState& state);

// Gives up the drafts of the coming step. False if there are none.
bool DropDrafts(EngineState& state);

// The model has computed the generation's draft, the first `n_accepted` tokens of which it agrees
// with: takes back the cells of the others. False if the memory could not.
bool SettleDraft(EngineState& state, Generation& generation, int32_t n_accepted);

}  // namespace polykv
