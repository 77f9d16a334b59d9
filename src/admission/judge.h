// Whether one more session may start: a pure function of a picture of the load, a policy and a
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "admission/load.h"
#include "admission/policy.h"
#include "admission/settle.h"
#include "base/types.h"

namespace polykv {

// Another enforced policy, which an admission must not bring under its target.
struct Neighbour {
  PoolId pool_id = kNoPool;  // kNoPool: one that the applicant must not know of
  AdmissionPolicy policy;
  GovernedLoad governed;
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
  std::optional<double> projected_by_measure = {};
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
