#include "admission/verdict_facts.h"

namespace polykv {
namespace {

template <typename T>
Fact OrNull(const std::optional<T>& value) {
  if (!value) return std::monostate{};
  if constexpr (std::is_integral_v<T>) {
    return int64_t{*value};
  } else {
    return *value;
  }
}

}  // namespace

Facts VerdictFacts(const Verdict& verdict) {
  return {{"can_admit", verdict.can_admit},
          {"reason", verdict.reason},
          {"projected_mean_tps_if_admitted", OrNull(verdict.projected_mean_tps)},
          {"projected_mean_tps_model", OrNull(verdict.projected_by_model)},
          {"projected_mean_tps_measured", OrNull(verdict.projected_by_drops)},
          {"projected_idle_estimate", verdict.idle_estimate},
          {"headroom_sessions", OrNull(verdict.headroom_by_cells)},
          {"headroom_sessions_tps", OrNull(verdict.headroom_by_tps)},
          {"headroom", OrNull(verdict.headroom())},
          {"kv_headroom_pct", verdict.kv_headroom_pct},
          {"settling", verdict.settling},
          {"settle_remaining_ms", verdict.settle_remaining_us / 1'000},
          {"guaranteed", verdict.guaranteed},
          {"compaction_pressure", verdict.compaction_pressure}};
}

}  // namespace polykv
