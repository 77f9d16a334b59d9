#include "engine/build_snapshot.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace polykv {
namespace {

std::string_view ResidencyName(Residency residency) {
  switch (residency) {
    case Residency::kMaterializing:
      return "materializing";
    case Residency::kResident:
      return "resident";
    case Residency::kEvicted:
      return "evicted";
  }
  return "";
}

PoolView ViewOf(const PoolNode& node) {
  PoolView view;
  view.tenant = node.origin.tenant;
  view.pool_id = node.id;
  if (!node.names.empty()) view.name = node.names.front();
  view.parent = node.parent != nullptr ? node.parent->id : kNoPool;
  view.branch_pos = node.branch_pos;
  view.shared_len = node.shared_len;
  view.prefix_len = node.length();
  view.prefix_hash = node.prefix.hashes.back();
  view.n_prefilled = node.n_materialized;
  view.own_cells = node.OwnedCells();
  view.subtree_cells = view.own_cells;
  view.residency = ResidencyName(node.residency);
  view.refs = node.refs;
  view.pinned = node.pinned();
  view.n_pins = static_cast<int32_t>(node.pins.size());
  view.auto_pinned = node.in_use();
  view.orphaned_pin = node.pinned() && !node.in_use();
  view.last_access_us = node.last_access;
  view.hits = node.hits;
  view.queries = node.queries;
  view.latency = node.latency;
  view.decisions = node.decisions;
  return view;
}

SessionView ViewOf(const EngineState& state, const Session& session) {
  SessionView view;
  view.tenant = session.key.tenant;
  view.session_id = session.key.id;
  view.pool_id = session.pool_id;
  view.state = session.n_waiting > 0 ? "queued" : "idle";
  view.n_tokens = session.sequence.n_tokens();
  view.n_shared = session.sequence.lease.length();
  view.suffix_n_tokens = session.sequence.n_private();
  view.marginal_kv_bytes = view.suffix_n_tokens * state.backend->info().bytes_per_cell;
  view.ttft_ms = static_cast<double>(session.ttft_us) / 1e3;
  const SavedSequence* saved = state.host.FindOrNull(HostKind::kSession, session.number);
  if (saved != nullptr) view.n_saved = saved->n_saved();
  view.ctx_used = saved != nullptr ? saved->n_tokens() : view.n_tokens;
  view.ctx_total = state.config.n_ctx_session;
  view.last_active_us = session.last_active;
  return view;
}

SlotView ViewOf(const Slot& slot, TimeUs now) {
  SlotView view = slot.last;
  if (slot.running == nullptr) return view;
  const Generation& generation = *slot.running;
  view.tenant = generation.request->tenant;
  view.is_processing = true;
  view.n_ctx = generation.n_ctx;
  view.task_id = generation.task_id;
  view.is_parked = generation.parked.has_value();
  view.n_tokens = generation.n_tokens();
  view.n_saved = view.is_parked ? generation.parked->n_saved() : 0;
  view.timings = generation.timings;
  view.n_predict = generation.n_predict;
  view.has_next_token = true;
  view.has_new_line = generation.text.has_new_line();
  view.params_json = generation.request->params_json;
  view.pool_id = generation.report.pool_id;
  view.session_id = generation.report.session_id;
  view.tps = generation.rate.TokensPerSecond(view.is_parked ? generation.parked_at : now);
  if (generation.phase == Generation::Phase::kDecode) {
    view.last_token_us = now - generation.rate.SinceLast(now);
  }
  return view;
}

// The pools are sorted by id.
PoolView* FindOrNull(std::vector<PoolView>& pools, PoolId id) {
  const auto it =
      std::lower_bound(pools.begin(), pools.end(), id,
                       [](const PoolView& pool, PoolId wanted) { return pool.pool_id < wanted; });
  return it == pools.end() || it->pool_id != id ? nullptr : &*it;
}

// Links children to their parents and adds up what is below each; by id, so parents come first.
// Returns the depth of the tree.
int32_t JoinTree(std::vector<PoolView>& pools) {
  std::vector<int32_t> depths;  // parallel to the pools
  for (PoolView& pool : pools) {
    depths.push_back(1);
    PoolView* const parent = FindOrNull(pools, pool.parent);
    if (parent == nullptr) continue;
    depths.back() += depths[static_cast<size_t>(parent - pools.data())];
    parent->children.push_back(pool.pool_id);
    if (pool.residency == "resident") parent->dedup_cells += pool.shared_len;
  }
  for (auto pool = pools.rbegin(); pool != pools.rend(); ++pool) {
    PoolView* const parent = FindOrNull(pools, pool->parent);
    if (parent != nullptr) parent->subtree_cells += pool->subtree_cells;
  }
  return depths.empty() ? 0 : *std::max_element(depths.begin(), depths.end());
}

// Adds what runs in slots to the sessions, and the sessions to their pools.
void Join(EngineSnapshot& snapshot) {
  for (SessionView& session : snapshot.sessions) {
    for (const SlotView& slot : snapshot.slots) {
      const bool its_own = slot.tenant == session.tenant && slot.session_id == session.session_id;
      if (!slot.is_processing || !its_own) continue;
      session.slot_id = slot.id;
      session.state = slot.timings.n_generated > 0 ? "decoding" : "prefilling";
      if (slot.is_parked) session.state = "parked";
      session.n_saved = slot.n_saved;
      session.ctx_used = slot.n_tokens;
      session.tps = slot.tps;
      session.last_token_us = slot.last_token_us;
    }
    PoolView* const pool = FindOrNull(snapshot.pools, session.pool_id);
    if (pool == nullptr) continue;
    pool->sessions.push_back(session.session_id);
    pool->subtree_cells += session.suffix_n_tokens;
    pool->dedup_cells += session.n_shared;
  }
}

}  // namespace

ServerRates RatesAt(const EngineSnapshot& snapshot, TimeUs now) {
  ServerRates rates{.aggregate_tps = snapshot.throughput.TokensPerSecond(
                        std::max(snapshot.now_us, now - kSnapshotUs))};
  for (const SlotView& slot : snapshot.slots) {
    if (slot.last_token_us < 0) continue;
    const double tps = TpsAt(slot, now);
    ++(tps > 0 ? rates.n_active : rates.n_warming);
    rates.mean_active_tps += tps;
  }
  if (rates.n_active > 0) rates.mean_active_tps /= rates.n_active;
  return rates;
}

std::shared_ptr<const EngineSnapshot> BuildSnapshot(const EngineState& state, uint64_t version) {
  auto snapshot = std::make_shared<EngineSnapshot>();
  snapshot->now_us = state.now();
  snapshot->version = version;
  snapshot->boot_id = state.config.boot_id;
  snapshot->draining = state.draining;
  snapshot->adapters = state.adapters;
  snapshot->pools.reserve(state.pools.nodes().size());
  for (const auto& [id, node] : state.pools.nodes()) snapshot->pools.push_back(ViewOf(*node));
  snapshot->sessions.reserve(state.sessions.size());
  for (const auto& [id, session] : state.sessions) {
    snapshot->sessions.push_back(ViewOf(state, *session));
  }
  for (PoolView& pool : snapshot->pools) {
    const auto governor = state.governors.find(pool.pool_id);
    if (governor != state.governors.end()) pool.admission = governor->second.policy;
  }
  for (const Slot& slot : state.slots) snapshot->slots.push_back(ViewOf(slot, snapshot->now_us));
  Join(*snapshot);
  snapshot->tree_depth = JoinTree(snapshot->pools);
  snapshot->seq_ids_used =
      state.config.n_parallel + state.pool_seqs.n_used() + state.session_seqs.n_used();
  snapshot->seq_ids_max = state.config.n_seq_max();
  snapshot->kv_cells_used = state.cache.used();
  snapshot->kv_cells_total = state.cache.total();
  snapshot->kv_span = state.backend->HighestCell();
  snapshot->memories = state.backend->MemoryUses();
  snapshot->bytes_per_cell = state.backend->info().bytes_per_cell;
  snapshot->host_bytes = state.host.n_bytes();
  snapshot->host_entries = static_cast<int32_t>(state.host.n_entries());
  const HostStore::Usage& sessions = state.host.UsageOf(HostKind::kSession);
  snapshot->host_session_bytes = sessions.n_bytes;
  snapshot->host_sessions = static_cast<int32_t>(sessions.n_entries);
  const HostStore::Usage& pools = state.host.UsageOf(HostKind::kPool);
  snapshot->host_pool_bytes = pools.n_bytes;
  snapshot->host_pools = static_cast<int32_t>(pools.n_entries);
  snapshot->parked_bytes = state.parked_bytes;
  snapshot->n_parked = static_cast<int32_t>(
      std::count_if(state.running.begin(), state.running.end(),
                    [](const auto& generation) { return generation->parked.has_value(); }));
  snapshot->n_running = static_cast<int32_t>(state.running.size());
  snapshot->n_waiting = state.n_waiting();
  snapshot->throughput = state.throughput;
  snapshot->step_cost = state.step_cost.cost();
  snapshot->counters = state.counters;
  return snapshot;
}

}  // namespace polykv
