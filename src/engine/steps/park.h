// Running requests whose cells others need: their own cells wait in host memory, and come back.
#pragma once

#include "engine/state.h"

namespace polykv {

// Moves what only the decoding request holds out of the cache. False, and nothing changed, if
// config.park_bytes are not enough.
bool Park(EngineState& state, Generation& generation);
// Moves out as well what the newest parked request shares, of those whose shared cells come free by
// that because nobody else uses or pins them. False if there is none.
bool ParkShared(EngineState& state);
// Gives up what a request that ends holds in host memory, if it does.
void DropParked(EngineState& state, Generation& generation);

// Brings parked requests back, the oldest first, while one's cells and a first stretch can be had.
// If nothing else runs, the cells must do; one that does not fit even so ends truncated.
void ResumeParked(EngineState& state);

// While any is, no request starts.
bool AnyParked(const EngineState& state);
// Cells that the parked requests need to go on.
int32_t ParkedCells(const EngineState& state);

}  // namespace polykv
