#include "app/limits.h"

#include "api/stream_seats.h"
#include "api/views.h"
#include "events/event_log.h"

namespace polykv {
namespace {

Json Reasons() {
  Json events = Json::array();
  for (int i = 0; i < kNumEventKinds; ++i) events.push_back(EventName(static_cast<EventKind>(i)));
  return {
      {"admission",
       {"", "known session", "context headroom exhausted", "no free sequence",
        "no free stream (split cache)", "guaranteed minimum", "overcommit", "measurement settling",
        "projected mean tps below floor", "projected mean tps below floor (idle estimate)",
        "would break floor of pool N", "would break floor of another pool",
        "kv headroom exhausted"}},
      {"decision",
       {"admit", "guaranteed", "overcommit", "warn", "hold", "queue", "reject", "timeout"}},
      {"miss", {"no_pool", "diverged", "evicted", "window", "recurrent", "adapter", "self_test"}},
      {"stop", {"eos", "word", "limit", "kv_exhausted"}},
      {"event", std::move(events)},
  };
}

}  // namespace

std::string LimitsJson(const EngineConfig& engine, const Options& options,
                       const HttpServerConfig& http, const ModelInfo& model) {
  Json limits = {
      {"slots", engine.n_parallel},
      {"max_pools", engine.max_pools},
      {"max_sessions", engine.max_sessions},
      {"seq_ids_max", engine.n_seq_max()},
      {"n_ctx", engine.n_ctx_plain},
      {"n_ctx_session", engine.n_ctx_session},
      {"kv_cells_total", model.n_ctx},
      {"bytes_per_cell", model.bytes_per_cell},
      {"reserve_bytes", model.reserve_bytes},
      {"bytes_per_sequence", model.bytes_per_sequence},
      {"host_bytes", engine.host_bytes < 0 ? Json(nullptr) : Json(engine.host_bytes)},
      {"park_bytes", engine.park_bytes},
      {"max_waiting", engine.max_waiting},
      {"prefill_chunk", engine.prefill_chunk},
      {"grace_ms", engine.grace_ms},
      {"session_idle_ms", engine.session_idle_ms},
      {"session_hot_ms", engine.session_hot_ms},
      {"drain_ms", options.drain_ms},
      {"watchdog_ms", options.watchdog_ms},
      {"tps_interval_ms", options.tps_interval_ms},
      {"status_streams", StreamSeats::kCount},
      {"events_kept", EventLog::kCapacity},
      {"max_connections", http.max_connections},
      {"max_body_bytes", http.max_body_bytes},
      {"max_name_bytes", kMaxNameBytes},
      {"max_json_depth", kMaxJsonDepth},
  };
  limits["default_admission"] = PolicyJson({});
  limits["default_admission"].erase("target_tps_per_session");
  limits["reasons"] = Reasons();
  return JsonText(limits);
}

}  // namespace polykv
