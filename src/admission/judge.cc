#include "admission/judge.h"

#include <algorithm>
#include <cmath>

#include "admission/projection.h"

namespace polykv {
namespace {

constexpr int32_t kFirstStretch = 64;  // cells to begin decoding with: spec §6

// The largest number of sessions more with which the mean stays at the target or over it.
int32_t HeadroomByTps(const Projection& projection, const AdmissionPolicy& policy) {
  constexpr int32_t kMost = 1024;
  int32_t headroom = 0;
  while (headroom < kMost && projection.Best(headroom + 1) >= policy.target_tps_per_session) {
    ++headroom;
  }
  return headroom;
}

std::string ContextReason(const Question& question) {
  const Applicant& applicant = question.applicant;
  const ServerLoad& server = question.server;
  const bool too_long = applicant.expected_tokens.value_or(0) > server.cells_available;
  if (too_long || applicant.n_uncached + kFirstStretch > server.cells_available) {
    return "context headroom exhausted";
  }
  if (server.streams_free && *server.streams_free <= 0) return "no free stream (split cache)";
  return server.seq_ids_free <= 0 ? "no free sequence" : "";
}

// Whose floor the admission would break, besides the own one.
const Neighbour* BrokenNeighbourOrNull(const Question& question, TimeUs now) {
  const auto broken = [&](const Neighbour& neighbour) {
    const Projection projection(neighbour.governed, question.server, neighbour.forecast, now);
    if (neighbour.governed.mean_tps <= 0) return false;
    return projection.Best(question.forecast.n_unsettled + 1) <
           neighbour.policy.target_tps_per_session;
  };
  const auto found = std::find_if(question.neighbours.begin(), question.neighbours.end(), broken);
  return found == question.neighbours.end() ? nullptr : &*found;
}

Verdict Admit(Verdict verdict, std::string reason) {
  verdict.can_admit = true;
  verdict.reason = std::move(reason);
  return verdict;
}

Verdict Refuse(Verdict verdict, std::string reason) {
  verdict.can_admit = false;
  verdict.reason = std::move(reason);
  return verdict;
}

// What is reported whatever the outcome.
Verdict Report(const Question& question, const Projection& projection) {
  const ServerLoad& server = question.server;
  Verdict verdict;
  verdict.settling = question.forecast.n_unsettled > 0;
  verdict.settle_remaining_us = question.forecast.settle_remaining_us;
  verdict.compaction_pressure = CompactionPressure(server);
  if (server.cells_total > 0) {
    verdict.kv_headroom_pct = 100.0 * server.cells_available / server.cells_total;
  }
  const double marginal = question.governed.mean_private_cells;
  if (marginal > 0) {
    verdict.headroom_by_cells =
        static_cast<int32_t>(std::floor(std::max(0, server.cells_available) / marginal));
  }
  if (!projection.known()) return verdict;
  verdict.idle_estimate = projection.idle_estimate();
  verdict.projected_by_model = projection.ByModel(1);
  verdict.projected_by_measure = projection.ByMeasure(1);
  verdict.projected_mean_tps = projection.Best(1);
  if (question.policy != nullptr) {
    verdict.headroom_by_tps = HeadroomByTps(projection, *question.policy);
  }
  return verdict;
}

}  // namespace

std::optional<int32_t> Verdict::headroom() const {
  if (!headroom_by_cells) return headroom_by_tps;
  if (!headroom_by_tps) return headroom_by_cells;
  return std::min(*headroom_by_cells, *headroom_by_tps);
}

double CompactionPressure(const ServerLoad& load) {
  if (load.cells_total <= 0) return 0;
  const double used = 1.0 - static_cast<double>(load.cells_available) / load.cells_total;
  const double over_half = std::clamp((used - 0.5) / 0.5, 0.0, 1.0);
  return over_half + (1 - over_half) * over_half * std::clamp(load.largest_share, 0.0, 1.0);
}

Verdict Judge(const Question& question, TimeUs now) {
  const Projection projection(question.governed, question.server, question.forecast, now);
  Verdict verdict = Report(question, projection);
  if (question.applicant.known_session) return Admit(std::move(verdict), "known session");
  if (std::string reason = ContextReason(question); !reason.empty()) {
    return Refuse(std::move(verdict), std::move(reason));
  }
  if (question.policy == nullptr) return verdict;
  const AdmissionPolicy& policy = *question.policy;
  if (question.governed.n_attached < policy.guarantee_min_sessions) {
    verdict.guaranteed = true;
    return Admit(std::move(verdict), "guaranteed minimum");
  }
  if (question.applicant.overcommit) return Admit(std::move(verdict), "overcommit");
  verdict.hold = verdict.settling && !question.applicant.waited_out;
  if (verdict.hold) return Refuse(std::move(verdict), "measurement settling");
  if (verdict.projected_mean_tps.value_or(policy.target_tps_per_session) <
      policy.target_tps_per_session) {
    const bool idle = verdict.idle_estimate;
    return Refuse(std::move(verdict), idle ? "projected mean tps below floor (idle estimate)"
                                           : "projected mean tps below floor");
  }
  if (const Neighbour* neighbour = BrokenNeighbourOrNull(question, now)) {
    const std::string which = neighbour->pool_id == kNoPool
                                  ? "another pool"
                                  : "pool " + std::to_string(neighbour->pool_id);
    return Refuse(std::move(verdict), "would break floor of " + which);
  }
  if (verdict.headroom_by_cells.value_or(1) < 1) {
    return Refuse(std::move(verdict), "kv headroom exhausted");
  }
  return verdict;
}

}  // namespace polykv
