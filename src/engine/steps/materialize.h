// The cells of pools: computed, shared with a parent, dropped, brought back.
#pragma once

#include "engine/state.h"

namespace polykv {

Problem PoolNotFound(const std::string& pool);  // 404

// A sequence for a pool that needs `n_cells` more, which can be had; evicts unused pools for that,
// but not `keep`.
Result<SeqId> AcquirePoolSequence(EngineState& state, int32_t n_cells, const PoolNode* keep);
// Cells that a pool is to have of its own, as far as is known before it begins.
int32_t OwnCells(const EngineState& state, const PoolNode& node);

// The pool's job begins. It ends, with an answer to its waiters, as soon as the pool is resident:
// whoever makes a pool grow calls EndIfResident.
Materialization& StartMaterializing(EngineState& state, std::shared_ptr<PoolNode> node);
void EndIfResident(EngineState& state, Materialization& job);
// Starts computing an evicted pool again, its parent before it. A problem if neither sequence nor
// cells can be had.
std::optional<Problem> RebuildPool(EngineState& state, const std::shared_ptr<PoolNode>& node);

// Every job takes over what is there of its pool already, or goes on waiting for its parent.
// Returns whether one came to its end by that.
bool BeginPools(EngineState& state);
// The next `n_tokens` of the pool are computed; answers those who wait when it is complete.
void AdvancePool(EngineState& state, Materialization& job, int32_t n_tokens);
// Takes everything back that the materialization did, and of those that wait for this pool, with an
// answer to everybody who waits.
void FailPool(EngineState& state, const std::shared_ptr<PoolNode>& failed, const Problem& problem);

Materialization* FindJob(EngineState& state, const PoolNode* node);  // null: there is none
// What an answer says of the pool; `job`: of the one that creates it, null if it was there already.
PoolCreated Describe(const EngineState& state, const PoolNode& node, const Materialization* job);

// Frees the pool's cells and sequence; tokens and identity stay.
void EvictPool(EngineState& state, PoolNode& node);
// Takes the pool out of the tree at once; attached sequences go on. REQUIRES: no children.
void ReleasePool(EngineState& state, const std::shared_ptr<PoolNode>& node);

}  // namespace polykv
