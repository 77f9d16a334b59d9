// What happens goes into the event log, if somebody keeps one.
#pragma once

#include "engine/state.h"
#include "events/event.h"

namespace polykv {

void Record(EngineState& state, EventKind kind, const PoolNode& pool, Facts facts = {});
void Record(EngineState& state, EventKind kind, const Session& session, Facts facts = {});
// Of a request; nothing if it is of no session.
void Record(EngineState& state, EventKind kind, const Generation& generation, Facts facts = {});
void RecordPressure(EngineState& state, const char* action);

}  // namespace polykv
