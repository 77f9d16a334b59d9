// What happens when cells run short. Everything that may be given up without harm goes first; then
// one request, never all.
#pragma once

#include "engine/state.h"

namespace polykv {

// Cells that could be freed without harming a running request: idle sessions, tokens left in free
// slots, pools that nobody uses. `keep_*` are not counted.
int32_t ReclaimableCells(const EngineState& state, const Sequence* keep_sequence,
                         const PoolNode* keep_pool);
// Cells kept for the start of decoding when a request starts.
int32_t FirstStretch(const EngineConfig& config, const Generation& generation);
// Cells that started requests and pools will still need for sure: the rest of their prompts and the
// first stretch of decoding; and those of the embedding prompt whose turn it is.
int32_t ReservedCells(const EngineState& state);

// Gives up the least recently used thing that harms nobody. False if there is none.
bool ReclaimOnce(EngineState& state, const Sequence* keep_sequence, const PoolNode* keep_pool);

// Makes room for `n_cells`: reclaims, then ends or puts back the newest request, then the newest
// materialization. Returns true if a running request or a materialization was touched, so that the
// plan of the step no longer holds.
bool MakeRoom(EngineState& state, int32_t n_cells);
// The model found no room although our count says there is some: gives up the next thing in that
// order.
void MakeSomeRoom(EngineState& state);

}  // namespace polykv
