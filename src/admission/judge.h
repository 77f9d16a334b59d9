// Whether one more session may start: a pure function of a picture of the load, a policy and a
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "admission/policy.h"
#include "admission/settle.h"
#include "base/types.h"

namespace polykv {

// The sessions that one policy governs: those of its pool and of descendants without their own.
struct GovernedLoad {
  int32_t n_attached = 0;  // running, queued, parked, or active within the last 30 s
  int32_t n_idle = 0;      // known, but not attached
  int32_t n_warming = 0;   // decoding, without a settled rate yet
  double mean_tps = 0;     // experienced, over those that decode and are not warming; 0: none
  double mean_private_cells = 0;  // of their private suffixes; 0: nothing is known
};

// The whole server.
struct ServerLoad {
  int32_t n_decoding = 0;  // sessions and plain requests with a settled rate
  int32_t cells_total = 0;
  int32_t cells_available = 0;               // free, or to be had without harming a running request
  double largest_share = 0;                  // of its context that the fullest session uses, [0, 1]
  int32_t seq_ids_free = 0;                  // or to be had
  std::optional<int32_t> streams_free = {};  // of a split cache
};

// Another enforced policy, which an admission must not bring under its target.
struct Neighbour {
  PoolId pool_id = kNoPool;  // kNoPool: one that the applicant must not know of
  AdmissionPolicy policy;
  double mean_tps = 0;
  Forecast forecast;
};

struct Applicant {
  bool known_session = false;
  bool overcommit = false;
  bool waited_out = false;  // has been held for settling as long as one may be
  std::optional<int64_t> expected_tokens = {};
  int32_t n_uncached = 0;  // prompt tokens that it has to compute
};

struct Verdict {
  bool can_admit = true;
  std::string reason;  // empty: nothing speaks against it
  bool hold = false;   // refused only until an earlier admission has settled
  std::optional<double> projected_mean_tps = {};
  std::optional<double> projected_by_model = {};
  std::optional<double> projected_by_drops = {};
  bool idle_estimate = false;
  bool settling = false;
  TimeUs settle_remaining_us = 0;
  bool guaranteed = false;
  std::optional<int32_t> headroom_by_cells = {};
  std::optional<int32_t> headroom_by_tps = {};
  double kv_headroom_pct = 0;
  double compaction_pressure = 0;  // [0, 1]

  std::optional<int32_t> headroom() const;  // the smaller one; none: neither is known
};

struct Question {
  const AdmissionPolicy* policy = nullptr;  // null: the pool is under none
  GovernedLoad governed;
  ServerLoad server;
  Forecast forecast;
  std::span<const Neighbour> neighbours;
  Applicant applicant;
};

// The arms, in order: known session, context, guaranteed minimum, settling, floor (the own one,
// then the neighbours'), cells. Without a policy only the first two apply.
Verdict Judge(const Question& question, TimeUs now);

// 0 as long as half of the cells are available; rises with the used share and with the largest
// session's share of its context.
double CompactionPressure(const ServerLoad& load);

}  // namespace polykv
