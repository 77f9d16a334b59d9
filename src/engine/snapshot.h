// What status routes read: a consistent picture of the engine, published by the engine thread and
// immutable from then on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admission/policy.h"
#include "base/types.h"
#include "kv/model_backend.h"
#include "meter/histogram.h"
#include "meter/step_cost.h"
#include "meter/throughput.h"
#include "session/request.h"

namespace polykv {

struct SessionView {
  TenantId tenant = kEverybody;
  SessionId session_id;
  PoolId pool_id = kNoPool;
  int32_t slot_id = -1;         // -1: holds none
  std::string state;            // queued, prefilling, decoding, parked, idle
  int32_t n_tokens = 0;         // tokens whose cells it holds
  int32_t n_saved = 0;          // tokens whose cells are in host memory
  int32_t n_shared = 0;         // of them shared with its pool
  int32_t suffix_n_tokens = 0;  // private: n_tokens - n_shared
  int64_t marginal_kv_bytes = 0;
  double tps = 0;  // experienced, at the time of the snapshot; 0: warming or not decoding
  TimeUs last_token_us = -1;  // while it decodes
  double ttft_ms = 0;         // of the latest request; 0: none yet
  int32_t ctx_used = 0;
  int32_t ctx_total = 0;
  TimeUs last_active_us = 0;
};

struct PoolView {
  TenantId tenant = kEverybody;
  PoolId pool_id = kNoPool;
  std::string name;
  PoolId parent = kNoPool;
  int32_t branch_pos = 0;
  int32_t shared_len = 0;
  int32_t prefix_len = 0;
  uint64_t prefix_hash = 0;
  int32_t n_prefilled = 0;
  int32_t own_cells = 0;      // physical cells that the pool owns now
  int32_t subtree_cells = 0;  // own + descendants + private cells of attached sessions
  int32_t dedup_cells = 0;    // cells that its sessions would need besides, were nothing shared
  std::string residency;      // materializing, resident, evicted
  int32_t refs = 0;
  bool pinned = false;
  int32_t n_pins = 0;  // keys that pin it
  bool auto_pinned = false;
  bool orphaned_pin = false;
  TimeUs last_access_us = 0;
  uint64_t hits = 0;     // attaches that shared at least one token
  uint64_t queries = 0;  // attaches
  LatencyMeters latency;
  std::map<std::string_view, uint64_t> decisions;  // of the admission gate
  std::optional<AdmissionPolicy> admission;        // its own
  std::vector<PoolId> children;
  std::vector<SessionId> sessions;
};

struct SlotView {
  TenantId tenant = kEverybody;  // of the running or the latest request
  int32_t id = 0;
  int32_t n_ctx = 0;
  bool speculative = false;
  bool is_processing = false;
  bool is_parked = false;
  int64_t task_id = -1;  // of the running or the latest request; -1: none yet
  int32_t n_tokens = 0;  // tokens in the sequence it works on
  int32_t n_saved = 0;   // of them parked
  Timings timings;
  int32_t n_predict = -1;
  bool has_next_token = false;
  bool has_new_line = false;
  std::string params_json;  // llama-server's params object
  PoolId pool_id = kNoPool;
  SessionId session_id;
  double tps = 0;             // as in SessionView
  TimeUs last_token_us = -1;  // as in SessionView
};

// Monotonic since boot, except the gauges that say so.
struct Counters {
  uint64_t n_prompt_processed = 0;
  uint64_t n_prompt_cached = 0;
  TimeUs prompt_us = 0;          // time of steps that computed prompt tokens
  uint64_t n_prefill_steps = 0;  // those
  uint64_t n_generated = 0;
  uint64_t n_generated_steps = 0;  // without each request's first token
  TimeUs generate_us = 0;          // summed over streams
  uint64_t n_decode = 0;           // llama_decode calls
  uint64_t n_busy_slots = 0;       // summed over decode calls
  uint64_t n_tokens_max = 0;       // longest sequence seen
  uint64_t n_drafts = 0;           // drafts that the model has seen
  uint64_t n_draft = 0;            // tokens in them
  uint64_t n_draft_accepted = 0;
  std::vector<uint64_t> n_accepted_at;  // by place in the draft; empty before the first draft
  uint64_t pool_queries = 0;
  uint64_t pool_hits = 0;
  uint64_t pool_query_tokens = 0;
  uint64_t pool_hit_tokens = 0;
  uint64_t pool_prefilled_tokens = 0;  // tokens computed to materialize pools
  uint64_t kv_exhausted = 0;           // requests ended early for want of cells
  uint64_t parked = 0;                 // times a request was parked …
  uint64_t resumed = 0;                // … and came back
  uint64_t sessions_saved = 0;         // times that an idle session went to the host store …
  uint64_t sessions_restored = 0;      // … and came back
  uint64_t pools_saved = 0;            // times that a pool went there …
  uint64_t pools_restored = 0;         // … and came back
  uint64_t cancelled = 0;
  LatencyMeters latency;  // of requests of no pool
  struct MissReasons {
    uint64_t no_pool = 0, diverged = 0, evicted = 0, window = 0, recurrent = 0, adapter = 0,
             self_test = 0;
  } miss;
};

struct EngineSnapshot {
  TimeUs now_us = 0;
  uint64_t version = 0;
  PoolId boot_id = 0;
  bool draining = false;
  AdapterSet adapters;                // for requests that name none
  std::vector<PoolView> pools;        // by id
  std::vector<SessionView> sessions;  // every known session
  std::vector<SlotView> slots;        // by id
  int32_t tree_depth = 0;
  int32_t seq_ids_used = 0;
  int32_t seq_ids_max = 0;
  int32_t kv_cells_used = 0;
  int32_t kv_cells_total = 0;
  int32_t kv_span = -1;             // ModelBackend::HighestCell
  std::vector<MemoryUse> memories;  // ModelBackend::MemoryUses
  int64_t bytes_per_cell = 0;
  int64_t host_bytes = 0;  // of the host store
  int32_t host_entries = 0;
  int64_t host_session_bytes = 0;  // of it idle sessions
  int32_t host_sessions = 0;
  int64_t host_pool_bytes = 0;  // and evicted pools
  int32_t host_pools = 0;
  int64_t parked_bytes = 0;
  int32_t n_parked = 0;
  Throughput throughput;  // of all streams together
  int32_t n_running = 0;
  int32_t n_waiting = 0;
  StepCost step_cost;  // as measured
  Counters counters;
};

// While steps go on, a newer snapshot comes with the first one that ends that long after this.
inline constexpr TimeUs kSnapshotUs = 20'000;

// The view's rate as it is at `now`: a step that had not ended when the snapshot was made may have
// taken long since.
template <typename View>
double TpsAt(const View& view, TimeUs now) {
  const TimeUs since_last = now - kSnapshotUs - view.last_token_us;
  if (view.last_token_us < 0 || since_last <= 0) return view.tps;
  return std::min(view.tps, 1e6 / static_cast<double>(since_last));
}

struct ServerRates {
  double aggregate_tps = 0;    // of all streams together
  double mean_active_tps = 0;  // over the decoding streams with a settled rate; 0: none
  int32_t n_active = 0;        // those
  int32_t n_warming = 0;       // and those without one
};
ServerRates RatesAt(const EngineSnapshot& snapshot, TimeUs now);

}  // namespace polykv
