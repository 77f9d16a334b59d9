// Something that happened in the engine, for those who follow GET /polykv/events.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/types.h"

namespace polykv {

// With each kind, the facts that it always has. README.md tells clients the same.
enum class EventKind {
  // Of a pool.
  kPoolCreated,    // name, parent (null), branch_pos, prefix_len, from_session
  kPoolForked,     // the same
  kPoolSealed,     // its cells are there: prefix_len, shared_len, n_prefilled, prefill_ms
  kPoolRebuilt,    // … again, after it was evicted: the same
  kPoolFailed,     // error, message, rebuild
  kPoolEvicted,    // n_cells that came free, saved (in host memory)
  kPoolPinned,     // nobody had pinned it before
  kPoolUnpinned,   // nobody pins it any more
  kPoolReleased,   //
  kPolicyChanged,  // target_tps_per_session (null: taken away)
  kFloorBroken,    // the mean of its sessions is well under its target: mean_tps, target
  kFloorHeld,      // … and no longer: the same

  // Of a session. With request_id if the client gave one.
  kSessionBegun,      // known from now on: one_request
  kSessionAttached,   // a request of it has got a slot: slot_id, n_prompt, cache_n, waited_ms
  kSessionParked,     // that request waits for cells: n_cells
  kSessionResumed,    // … and goes on: parked_ms
  kSessionFinished,   // the request is done: n_generated, ctx_used, ttft_ms, tps, stop
  kSessionFailed,     // the request is over: status, error, message
  kSessionCancelled,  // its client is gone
  kSessionEnded,      // forgotten
  kAdmission,         // decision, and the facts of the verdict
  kSettleBegun,       // what its admission costs is measured: mean_tps before it
  kSettleEnded,       // mean_before, mean_tps, n_tokens, drop (null: no sample)

  // Of the server.
  kKvPressure,  // somebody gave cells up for others: action, cells_free
  kDraining,    // no new work is taken
};
inline constexpr int kNumEventKinds = static_cast<int>(EventKind::kDraining) + 1;

std::string_view EventName(EventKind kind);  // as on the wire, "pool_created"

struct Event {
  uint64_t number = 0;  // consecutive, from 1; the log gives it
  EventKind kind = EventKind::kDraining;
  TimeUs at = 0;
  TenantId tenant = kEverybody;  // who may know; kEverybody: it concerns the server
  PoolId pool_id = kNoPool;      // the pool that it is about, or its session's
  SessionId session_id;          // empty: about no session
  Facts facts;
};

}  // namespace polykv
