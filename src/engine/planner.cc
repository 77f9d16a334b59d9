#include "engine/planner.h"

#include <algorithm>
#include <numeric>

namespace polykv {
namespace {

constexpr double kOverdueAfter =
    3.0;  // of its solo time; the fourth is its own computing (spec §3)

constexpr double kOutsidePatience = 10;  // times that of jobs under a policy
constexpr int32_t kPiece = 16;           // a chunk is a multiple of it (spec §6)
constexpr double kEnough = 0.75;         // of the chunk for full room: worth a step with a prompt
constexpr int64_t kDuesShare = 10;       // prefill has one part in that many of the engine's time

bool Overdue(const PrefillJob& job, const PrefillLimits& limits) {
  const double solo_us = (job.n_left + job.n_done) * limits.us_per_token;
  const double patience = kOverdueAfter * (job.outside ? kOutsidePatience : 1);
  return static_cast<double>(limits.now - job.since) > patience * solo_us;
}

std::vector<size_t> Order(std::span<const PrefillJob> jobs, const PrefillLimits& limits) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool a_overdue = Overdue(jobs[a], limits);
    const bool b_overdue = Overdue(jobs[b], limits);
    if (a_overdue != b_overdue) return a_overdue;
    if (a_overdue) return jobs[a].since < jobs[b].since;
    if (jobs[a].outside != jobs[b].outside) return jobs[b].outside;
    if (jobs[a].n_left != jobs[b].n_left) return jobs[a].n_left < jobs[b].n_left;
    return jobs[a].since < jobs[b].since;
  });
  return order;
}

// The jobs that `budget` tokens are for, each with how many of them.
template <typename Take>
void ShareOut(std::span<const PrefillJob> ordered, int32_t budget, Take take) {
  for (size_t i = 0; i < ordered.size() && budget > 0; ++i) {
    const int32_t n_tokens = std::min({budget, ordered[i].n_left, ordered[i].n_to_stop});
    take(i, n_tokens);
    budget -= n_tokens;
  }
}

// Most that a step takes with `budget` prompt tokens.
double AtMost(std::span<const PrefillJob> ordered, int32_t budget, const StepRoom& room) {
  StepShape shape = room.decode;
  ShareOut(ordered, budget,
           [&](size_t i, int32_t n_tokens) { shape.AddPrefill(n_tokens, ordered[i].begin); });
  return room.margin * room.cost.Predict(shape);
}

// The largest chunk that a step of at most `us` has room for. A smaller one may take longer: larger
// ones are tried first.
int32_t LargestWithin(TimeUs us, std::span<const PrefillJob> ordered, int32_t budget,
                      const StepRoom& room) {
  for (int32_t n = (budget + kPiece - 1) / kPiece * kPiece; n > 0; n -= kPiece) {
    if (AtMost(ordered, n, room) <= static_cast<double>(us)) return n;
  }
  return 0;
}

int32_t Available(std::span<const PrefillJob> jobs, int32_t budget) {
  int32_t n_available = 0;
  ShareOut(jobs, budget, [&](size_t, int32_t n_tokens) { n_available += n_tokens; });
  return n_available;
}

}  // namespace

void PrefillDues::Add(TimeUs step, TimeUs prefill) {
  owed_ = std::max<TimeUs>(0, owed_ + step / kDuesShare - prefill);
}

int32_t ChunkWithin(const StepRoom& room, std::span<const PrefillJob> ordered, int32_t budget) {
  budget = Available(ordered, budget);
  const int32_t full = std::max(kPiece, LargestWithin(room.full, ordered, budget, room));
  const int32_t now = LargestWithin(room.now, ordered, budget, room);
  if (now >= kEnough * full) return now;
  const double extra = AtMost(ordered, full, room) - room.margin * room.cost.Predict(room.decode);
  if (extra <= static_cast<double>(room.owed)) return full;
  return room.may_wait ? 0 : kPiece;
}

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
  const std::vector<size_t> order = Order(jobs, limits);
  std::vector<PrefillJob> ordered;
  for (const size_t job : order) ordered.push_back(jobs[job]);
  if (limits.room) budget = std::min(budget, ChunkWithin(*limits.room, ordered, budget));
  ShareOut(ordered, budget,
           [&](size_t i, int32_t n_tokens) { plan.push_back({order[i], n_tokens}); });
  return plan;
}

}  // namespace polykv
