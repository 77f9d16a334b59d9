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
// first stretch of decoding.
int32_t StartedCells(const EngineState& state);
// Those, what parked requests need to go on, and the embedding prompt whose turn it is.
int32_t ReservedCells(const EngineState& state);

// Gives up one thing that harms nobody, each kind the least recently used first: what idle sessions
// hold alone, what free slots hold, pools that nobody uses, and at last what idle sessions keep in
// use. Sessions and pools go to the host store if they fit there. False if there is nothing.
bool ReclaimOnce(EngineState& state, const Sequence* keep_sequence, const PoolNode* keep_pool);

// Makes room for `n_cells`: reclaims, then parks the newest running request or puts it back into
// the queue; one that cannot be parked, or would wait for nobody, ends. At last the newest
// materialization goes. Returns true if a running request or a materialization was touched, so that
// the plan of the step no longer holds.
bool MakeRoom(EngineState& state, int32_t n_cells);
// The model found no room although our count says there is some: gives up the next thing in that
// order. If that is a request, nobody starts or comes back until a running one has ended.
void MakeSomeRoom(EngineState& state);

}  // namespace polykv
