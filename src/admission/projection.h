// What a mean rate would be with more sessions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "admission/load.h"
#include "admission/settle.h"
#include "base/types.h"

namespace polykv {

// Where it has been measured what an admission costs, that is taken as time between two tokens: one
// session adds about as much as the one before it, while the rate falls by less each time.
class Projection {
 public:
  Projection(const GovernedLoad& governed, const ServerLoad& server, const Forecast& forecast,
             TimeUs now);

  bool known() const { return !bases_.empty(); }
  bool idle_estimate() const { return idle_; }  // none decodes: it stands on what was settled
  // With `n_more` sessions besides those that have been admitted. REQUIRES: known().
  double ByModel(int32_t n_more) const;  // as if a step took as long as it has sessions
  std::optional<double> ByMeasure(int32_t n_more) const;  // none: no admission has shown anything
  double Best(int32_t n_more) const { return ByMeasure(n_more).value_or(ByModel(n_more)); }

 private:
  // Neither a moment's peak is believed, nor that all is as it was: the lower projection counts.
  struct Basis {
    double mean_tps = 0;
    int32_t n = 0;          // sessions that share the machine, at least 1
    double n_running = 0;   // of the policy's sessions, the others paused
    int32_t n_pending = 0;  // admitted ones that the mean does not show
  };
  // Sessions that will run besides those of the basis.
  double Added(const Basis& basis, int32_t n_more) const;

  std::vector<Basis> bases_;
  bool idle_ = false;
  int32_t n_attached_ = 0;
  std::optional<double> gap_per_session_;
};

}  // namespace polykv
