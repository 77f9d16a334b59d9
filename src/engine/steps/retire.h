// How a request ends, in every state.
#pragma once

#include "engine/state.h"

namespace polykv {

// Finished: its text has ended (or its cells have: `stop_reason` "kv_exhausted", then truncated).
void Finish(EngineState& state, Generation& generation, bool truncated, std::string stop_reason);
// Ended by an error or by its client; what it computed is given up.
void Fail(EngineState& state, Generation& generation, Problem problem);
void Cancel(EngineState& state, Generation& generation);

// Gives up the session's cells, saved ones too; the session stays known. REQUIRES: not running.
void DropSessionCells(EngineState& state, Session& session);
// Forgets the session: its waiting and running requests end with an error. False if it is unknown.
bool EndSession(EngineState& state, const SessionKey& key);

// An ended generation stays in its list until here, so that a step can end several while it walks.
void SweepEnded(EngineState& state);

void ReapAbandoned(EngineState& state);  // requests and pool creations whose client is gone
void ReapExpired(EngineState& state);  // pools past their grace, pins and sessions past their time

}  // namespace polykv
