#include "engine/record.h"

#include <utility>

namespace polykv {

void Record(EngineState& state, EventKind kind, const PoolNode& pool, Facts facts) {
  state.Record(
      {.kind = kind, .tenant = pool.origin.tenant, .pool_id = pool.id, .facts = std::move(facts)});
}

void Record(EngineState& state, EventKind kind, const Session& session, Facts facts) {
  state.Record({.kind = kind,
                .tenant = session.key.tenant,
                .pool_id = session.pool_id,
                .session_id = session.key.id,
                .facts = std::move(facts)});
}

void Record(EngineState& state, EventKind kind, const Generation& generation, Facts facts) {
  if (generation.session == nullptr) return;
  const std::string& request_id = generation.request->request_id;
  if (!request_id.empty()) facts.emplace_back("request_id", request_id);
  Record(state, kind, *generation.session, std::move(facts));
}

void RecordPressure(EngineState& state, const char* action) {
  state.Record({.kind = EventKind::kKvPressure,
                .facts = {{"action", action}, {"cells_free", state.cache.free()}}});
}

}  // namespace polykv
