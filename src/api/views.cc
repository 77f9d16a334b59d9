#include "api/views.h"

#include <algorithm>

namespace polykv {
namespace {

Json PositiveOrNull(double value) { return value > 0 ? Json(value) : Json(nullptr); }
Json IdOrNull(PoolId id) { return id == kNoPool ? Json(nullptr) : Json(id); }
Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json SlotOrNull(int32_t slot_id) { return slot_id < 0 ? Json(nullptr) : Json(slot_id); }

Json PoolSessionJson(const SessionView& session, TimeUs now) {
  return {{"session_id", session.session_id},
          {"slot_id", SlotOrNull(session.slot_id)},
          {"suffix_n_tokens", session.suffix_n_tokens},
          {"marginal_kv_bytes", session.marginal_kv_bytes},
          {"tps_ewma", PositiveOrNull(TpsAt(session, now))},
          {"ttft_ms", PositiveOrNull(session.ttft_ms)},
          {"state", session.state}};
}

}  // namespace

const PoolView* FindPoolOrNull(const EngineSnapshot& snapshot, const Caller& caller,
                               const std::string& id_or_name) {
  const auto found =
      std::find_if(snapshot.pools.begin(), snapshot.pools.end(), [&](const PoolView& pool) {
        const bool is_meant = std::to_string(pool.pool_id) == id_or_name ||
                              (!pool.name.empty() && pool.name == id_or_name);
        return is_meant && caller.Sees(pool.tenant);
      });
  return found == snapshot.pools.end() ? nullptr : &*found;
}

std::string PrefixHashText(uint64_t hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[15 - i] = kDigits[(hash >> (4 * i)) & 0xFU];
  return text;
}

Json PoolJson(const PoolView& pool, const EngineSnapshot& snapshot, const WallClock& wall) {
  Json sessions = Json::array();
  for (const SessionView& session : snapshot.sessions) {
    if (session.pool_id == pool.pool_id) sessions.push_back(PoolSessionJson(session, wall.now_us));
  }
  return {
      {"pool_id", pool.pool_id},
      {"name", TextOrNull(pool.name)},
      {"parent", pool.parent},
      {"branch_pos", pool.branch_pos},
      {"shared_len", pool.shared_len},
      {"prefix_len", pool.prefix_len},
      {"prefix_hash", PrefixHashText(pool.prefix_hash)},
      {"own_len", pool.prefix_len - pool.branch_pos},
      {"own_kv_bytes", pool.own_cells * snapshot.bytes_per_cell},
      {"subtree_kv_bytes", pool.subtree_cells * snapshot.bytes_per_cell},
      {"dedup_bytes", pool.dedup_cells * snapshot.bytes_per_cell},
      {"residency", pool.residency},
      {"n_prefilled", pool.n_prefilled},
      {"refs", pool.refs},
      {"pinned", pool.pinned},
      {"n_pins", pool.n_pins},
      {"auto_pinned", pool.auto_pinned},
      {"orphaned_pin", pool.orphaned_pin},
      {"last_access_ts", wall.UnixMs(pool.last_access_us)},
      {"hits", pool.hits},
      {"queries", pool.queries},
      {"children", pool.children},
      {"sessions", std::move(sessions)},
      {"admission", pool.admission ? PolicyJson(*pool.admission) : Json(nullptr)},
  };
}

Json SessionJson(const SessionView& session, const WallClock& wall) {
  return {
      {"session_id", session.session_id},
      {"pool_id", IdOrNull(session.pool_id)},
      {"slot_id", SlotOrNull(session.slot_id)},
      {"state", session.state},
      {"n_tokens", session.n_tokens},
      {"n_shared", session.n_shared},
      {"suffix_n_tokens", session.suffix_n_tokens},
      {"marginal_kv_bytes", session.marginal_kv_bytes},
      {"tps_ewma", PositiveOrNull(TpsAt(session, wall.now_us))},
      {"ttft_ms", PositiveOrNull(session.ttft_ms)},
      {"ctx_used", session.ctx_used},
      {"ctx_total", session.ctx_total},
      {"ctx_headroom_tokens", std::max(0, session.ctx_total - session.ctx_used)},
      {"last_active_ts", wall.UnixMs(session.last_active_us)},
  };
}

Json SlotJson(const SlotView& slot, TimeUs now) {
  Json json = {{"id", slot.id},
               {"n_ctx", slot.n_ctx},
               {"speculative", slot.speculative},
               {"is_processing", slot.is_processing}};
  if (slot.task_id >= 0) {
    const int32_t n_remain =
        slot.n_predict < 0 ? -1 : std::max(0, slot.n_predict - slot.timings.n_generated);
    json["id_task"] = slot.task_id;
    json["n_prompt_tokens"] = slot.n_tokens;
    json["n_prompt_tokens_processed"] = slot.timings.n_prompt_processed;
    json["n_prompt_tokens_cache"] = slot.timings.n_prompt_cached;
    json["params"] = Json::parse(slot.params_json.empty() ? "{}" : slot.params_json);
    json["next_token"] = Json::array({{{"has_next_token", slot.has_next_token},
                                       {"has_new_line", slot.has_new_line},
                                       {"n_remain", n_remain},
                                       {"n_decoded", slot.timings.n_generated}}});
  }
  json["pool_id"] = IdOrNull(slot.pool_id);
  json["session_id"] = TextOrNull(slot.session_id);
  json["tps_ewma"] = PositiveOrNull(TpsAt(slot, now));
  json["ctx_used"] = slot.n_tokens;
  json["ctx_total"] = slot.n_ctx;
  json["ctx_headroom_tokens"] = std::max(0, slot.n_ctx - slot.n_tokens);
  return json;
}

Json TpsJson(const EngineSnapshot& snapshot, const Caller& caller, const WallClock& wall) {
  const ServerRates rates = RatesAt(snapshot, wall.now_us);
  Json sessions = Json::array();
  for (const SessionView& session : snapshot.sessions) {
    if (!caller.Sees(session.tenant)) continue;
    sessions.push_back(
        {{"session_id", session.session_id},
         {"pool_id", IdOrNull(session.pool_id)},
         {"tps_ewma", PositiveOrNull(TpsAt(session, wall.now_us))},
         {"state", session.state},
         {"ctx_used", session.ctx_used},
         {"ctx_total", session.ctx_total},
         {"ctx_headroom_tokens", std::max(0, session.ctx_total - session.ctx_used)}});
  }
  return {{"ts", wall.unix_ms},
          {"aggregate_tps", rates.aggregate_tps},
          {"mean_active_tps", PositiveOrNull(rates.mean_active_tps)},
          {"n_active", rates.n_active},
          {"n_warming", rates.n_warming},
          {"sessions", std::move(sessions)}};
}

SlotView Redacted(const SlotView& slot) {
  return {.id = slot.id,
          .n_ctx = slot.n_ctx,
          .speculative = slot.speculative,
          .is_processing = slot.is_processing};
}

Json PoolTreeHead(const EngineSnapshot& snapshot) {
  Json memories = Json::array();
  for (const MemoryUse& memory : snapshot.memories) {
    memories.push_back({{"name", memory.name},
                        {"used", memory.used},
                        {"total", memory.total},
                        {"bytes", memory.bytes}});
  }
  return {{"boot_id", snapshot.boot_id},
          {"tree_depth", snapshot.tree_depth},
          {"seq_ids_used", snapshot.seq_ids_used},
          {"seq_ids_max", snapshot.seq_ids_max},
          {"kv_cells_used", snapshot.kv_cells_used},
          {"kv_cells_total", snapshot.kv_cells_total},
          {"kv_span", snapshot.kv_span < 0 ? Json(nullptr) : Json(snapshot.kv_span)},
          {"memories", std::move(memories)},
          {"bytes_per_cell", snapshot.bytes_per_cell}};
}

Json PoolTreeJson(const EngineSnapshot& snapshot, const Caller& caller, const WallClock& wall) {
  Json json = PoolTreeHead(snapshot);
  json["pools"] = Json::array();
  for (const PoolView& pool : snapshot.pools) {
    if (caller.Sees(pool.tenant)) json["pools"].push_back(PoolJson(pool, snapshot, wall));
  }
  return json;
}

}  // namespace polykv
