// Idle sessions and pools that leave the cache for the host store, and come back by a copy.
#pragma once

#include <memory>

#include "engine/state.h"

namespace polykv {

// Moves what only the idle session holds into the host store; what it shares stays in use. A later
// call moves that too, once nobody else holds it. False, and nothing changed, if it does not fit
// there. REQUIRES: SequenceCache::SoleCells are not 0.
bool CoolSession(EngineState& state, Session& session);
// The idle session gives its sequence back and keeps no pool in use; the host store has what fits.
void DetachSession(EngineState& state, Session& session);

// Whether the saved sequence can share from the pool what it shared before.
bool CanShareFrom(const EngineState& state, const PoolNode& pool, const SavedSequence& saved);
// Whether the sequence holds the cells before `saved`, or can share them from `pool` (may be null).
bool SharesWith(const EngineState& state, const Sequence& sequence, const SavedSequence& saved,
                const PoolNode* pool);
// What the host store has of the session, if its sequence can take it back: whole, or beside what
// it holds or can share from `pool` (may be null). Null: nothing.
const SavedSequence* SavedOfOrNull(const EngineState& state, const Session& session,
                                   const PoolNode* pool);
// The session's sequence becomes what it was before it cooled. False if it does not: the host store
// no longer has it, or there are no cells. Either way the store has nothing more of it.
// REQUIRES: it has a sequence.
bool WarmSession(EngineState& state, Session& session, const std::shared_ptr<PoolNode>& pool);

// The session runs again: the host store has nothing of it.
void ForgetCooled(EngineState& state, Session& session);

// Evicts the pool if the host store takes what it owns. REQUIRES: PoolTree::Evictable.
void CoolPool(EngineState& state, PoolNode& pool);
// Evicts the pool; the host store has what it owns, if it can take it. REQUIRES: as CoolPool.
void EvictToHost(EngineState& state, PoolNode& pool);
// The pool, which materializes and holds what it shares, has the rest from the host store. False,
// and nothing changed, if the store does not have it or there are no cells.
bool RestorePool(EngineState& state, PoolNode& pool);
// The pool is released: the host store has nothing of it.
void ForgetCooled(EngineState& state, const PoolNode& pool);

// Cools the session that nobody has used for longest while others decode, and the pool that is
// longest past its grace: one of each, since a copy holds up the streams.
void CoolIdle(EngineState& state);

}  // namespace polykv
