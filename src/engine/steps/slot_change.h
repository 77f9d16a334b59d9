// Saving, restoring and erasing what a slot's own sequence holds.
#pragma once

#include "engine/state.h"

namespace polykv {

// Carries out what waits for slots that are free by now, in the order of arrival.
void ChangeFreeSlots(EngineState& state);

}  // namespace polykv
