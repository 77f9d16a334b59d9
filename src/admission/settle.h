// What admitting a session has cost the others, measured: an admission counts as settled only when
// the new session has decoded for a while, and then shows by how much the mean rate has dropped.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "admission/policy.h"
#include "base/types.h"

namespace polykv {

// What a verdict needs to know of a pool's past admissions.
struct Forecast {
  int32_t n_unsettled = 0;               // admitted, not yet settled
  TimeUs settle_remaining_us = 0;        // at most, until the last of them has
  std::optional<double> drop_ewma = {};  // of the mean rate per admission; none: no sample yet
  double settled_mean = 0;               // latest mean rate while nothing was unsettled; 0: none
  TimeUs settled_at = 0;                 // when that was
};

// An admission that has settled, with the mean rates before it and now.
struct Settled {
  int64_t key = 0;
  double mean_before = 0;           // 0: nobody decoded
  int32_t n_tokens = 0;             // that it decoded until then
  std::optional<double> drop = {};  // of the mean rate; none: it says nothing
};

// The admissions of one policy. Engine thread only; time is a parameter.
class SettleTracker {
 public:
  using Key = int64_t;  // names an admission

  // `mean_tps`: of the policy's decoding sessions before it; 0: none decoded.
  void Admit(Key key, double mean_tps, TimeUs now);
  // A token that it decoded, its first one not counted.
  void AddTokens(Key key, int32_t n, TimeUs now);
  // Its session has ended: with the next Advance it counts as settled.
  void End(Key key);
  // Ends what has settled by now and returns it; `mean_tps` is the current mean, 0 if nobody
  // decodes.
  std::vector<Settled> Advance(const AdmissionPolicy& policy, double mean_tps, TimeUs now);

  Forecast Look(const AdmissionPolicy& policy, TimeUs now) const;

 private:
  struct Admission {
    Key key;
    double mean_before;
    TimeUs admitted_at;
    TimeUs first_token_at = 0;  // 0: none yet
    int32_t n_tokens = 0;
    bool ended = false;
  };
  // When the admission has settled at the latest.
  static TimeUs Deadline(const AdmissionPolicy& policy, const Admission& admission);
  Settled Settle(const AdmissionPolicy& policy, const Admission& admission, double mean_tps);

  std::vector<Admission> unsettled_;  // oldest first
  std::optional<double> drop_ewma_;
  double settled_mean_ = 0;
  TimeUs settled_at_ = 0;
};

}  // namespace polykv
