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
  // What one more running session adds to the time between two tokens, in seconds; none: as above.
  std::optional<double> gap_per_session = {};
  double settled_mean = 0;     // mean rate while nothing was unsettled, smoothed; 0: none
  double settled_running = 0;  // requests that shared the steps then
  TimeUs settled_at = 0;       // when that was, at last
};

// An admission that has settled, with the mean rates before it and now.
struct Settled {
  int64_t key = 0;
  double mean_before = 0;           // 0: nobody decoded
  double mean_tps = 0;              // 0: nobody decodes
  int32_t n_tokens = 0;             // that it decoded until then
  std::optional<double> drop = {};  // of the mean rate; none: it says nothing
};

// The admissions of one policy. Engine thread only; time is a parameter.
class SettleTracker {
 public:
  using Key = int64_t;  // names an admission

  // How the policy's sessions decode.
  struct Rate {
    double mean_tps = 0;   // 0: none decodes
    double n_running = 0;  // requests of the whole server that share its steps
  };

  // `rate`: before it, from `level_since` on.
  void Admit(Key key, const Rate& rate, TimeUs now);
  // A token that it decoded, its first one not counted.
  void AddTokens(Key key, int32_t n, TimeUs now);
  // Its session has ended: with the next Advance it counts as settled.
  void End(Key key);
  // Ends what has settled by now and returns it; `rate` is the current one, from `level_since` on.
  std::vector<Settled> Advance(const AdmissionPolicy& policy, const Rate& rate, TimeUs now);

  // When the newest admission decoded its first token: what streams did before says nothing of how
  // they fare since. 0: none has.
  TimeUs level_since() const { return level_since_; }

  Forecast Look(const AdmissionPolicy& policy, TimeUs now) const;

 private:
  struct Admission {
    Key key;
    Rate before;
    TimeUs admitted_at;
    TimeUs first_token_at = 0;  // 0: none yet
    int32_t n_tokens = 0;
    bool ended = false;
  };
  // When the admission has settled at the latest.
  static TimeUs Deadline(const AdmissionPolicy& policy, const Admission& admission);
  Settled Settle(const AdmissionPolicy& policy, const Admission& admission);
  void Follow(const Rate& rate, TimeUs now);

  std::vector<Admission> unsettled_;  // oldest first
  std::optional<double> drop_ewma_;
  std::optional<double> gap_per_session_;
  Rate level_;  // mean over time since level_since_, of the last seconds at most
  TimeUs level_since_ = 0;
  TimeUs advanced_at_ = 0;
  Rate settled_;  // level_ when nothing was unsettled
  TimeUs settled_at_ = 0;
};

}  // namespace polykv
