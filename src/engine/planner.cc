#include "engine/planner.h"

#include <algorithm>
#include <numeric>

namespace polykv {
namespace {

constexpr double kOverdueAfter =
    3.0;  // of its solo time; the fourth is its own computing (spec §3)

bool Overdue(const PrefillJob& job, const PrefillLimits& limits) {
  const double solo_us = (job.n_left + job.n_done) * limits.us_per_token;
  return static_cast<double>(limits.now - job.since) > kOverdueAfter * solo_us;
}

std::vector<size_t> Order(std::span<const PrefillJob> jobs, const PrefillLimits& limits) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool a_overdue = Overdue(jobs[a], limits);
    const bool b_overdue = Overdue(jobs[b], limits);
    if (a_overdue != b_overdue) return a_overdue;
    if (a_overdue) return jobs[a].since < jobs[b].since;
    if (jobs[a].n_left != jobs[b].n_left) return jobs[a].n_left < jobs[b].n_left;
    return jobs[a].since < jobs[b].since;
  });
  return order;
}

}  // namespace

std::vector<PrefillShare> PlanPrefill(std::span<const PrefillJob> jobs,
                                      const PrefillLimits& limits) {
  std::vector<PrefillShare> plan;
  if (jobs.empty()) return plan;
  int32_t budget = limits.n_batch - limits.n_decoding;
  if (limits.n_decoding > 0) {
    budget = std::min(budget, limits.chunk);
  } else {
    budget = std::min(budget, limits.n_ubatch);
  }
  for (const size_t job : Order(jobs, limits)) {
    if (budget <= 0) break;
    const int32_t n_tokens = std::min({budget, jobs[job].n_left, jobs[job].n_to_stop});
    plan.push_back({job, n_tokens});
    budget -= n_tokens;
  }
  return plan;
}

}  // namespace polykv
