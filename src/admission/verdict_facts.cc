#include "admission/verdict_facts.h"

namespace polykv {

Facts VerdictFacts(const Verdict& verdict) {
  return {{"can_admit", verdict.can_admit},
          {"reason", verdict.reason},
          {"projected_mean_tps_if_admitted", FactOrNull(verdict.projected_mean_tps)},
          {"projected_mean_tps_model", FactOrNull(verdict.projected_by_model)},
          {"projected_mean_tps_measured", FactOrNull(verdict.projected_by_measure)},
          {"projected_idle_estimate", verdict.idle_estimate},
          {"headroom_sessions", FactOrNull(verdict.headroom_by_cells)},
          {"headroom_sessions_tps", FactOrNull(verdict.headroom_by_tps)},
          {"headroom", FactOrNull(verdict.headroom())},
          {"kv_headroom_pct", verdict.kv_headroom_pct},
          {"settling", verdict.settling},
          {"settle_remaining_ms", verdict.settle_remaining_us / 1'000},
          {"guaranteed", verdict.guaranteed},
          {"compaction_pressure", verdict.compaction_pressure}};
}

}  // namespace polykv
