#include "admission/projection.h"

#include <algorithm>
#include <cmath>

namespace polykv {
namespace {

constexpr TimeUs kBelievedUs = 30'000'000;  // as long a settled mean is believed: spec §6

// Of the time between two tokens divided by the sessions, what one of them may cost: a single
// sample can be anything, and by a small one everybody would be admitted, by a large one nobody.
constexpr double kLeastShare = 1.0 / 3;
constexpr double kMostShare = 2;

// Sessions that are added to those in question: contexts grow and turns begin with prompts, so that
// later more is computed than while it was measured. With half of one, simulated ramps broke their
// floors.
constexpr double kReserve = 1;

// Standard deviations: no more sessions than that run at once in 95 % of the time, where they pause
// between their turns independently of each other.
constexpr double kOften = 1.645;

double SettledMean(const Forecast& forecast, TimeUs now) {  // 0: none, or too old
  return now - forecast.settled_at < kBelievedUs ? forecast.settled_mean : 0;
}

}  // namespace

Projection::Projection(const GovernedLoad& governed, const ServerLoad& server,
                       const Forecast& forecast, TimeUs now)
    : n_attached_(governed.n_attached), gap_per_session_(forecast.gap_per_session) {
  const double settled = SettledMean(forecast, now);
  const int32_t n_others = server.n_running - governed.n_running;
  const double settled_running = std::max(0.0, forecast.settled_running - n_others);
  if (governed.mean_tps > 0) {
    bases_.push_back({.mean_tps = governed.mean_tps,
                      .n = std::max(1, server.n_decoding),
                      .n_running = static_cast<double>(governed.n_running),
                      .n_pending = settled > 0 ? 0 : forecast.n_unsettled});
  }
  idle_ = bases_.empty() && settled > 0 && governed.n_attached > 0;
  if (settled <= 0 || (bases_.empty() && !idle_)) return;
  const int32_t n = idle_ ? governed.n_attached : server.n_decoding - forecast.n_unsettled;
  bases_.push_back({.mean_tps = settled,
                    .n = std::max(1, n),
                    .n_running = settled_running,
                    .n_pending = forecast.n_unsettled});
}

double Projection::ByModel(int32_t n_more) const {
  double least = bases_.front().mean_tps;
  for (const Basis& basis : bases_) {
    least = std::min(least, basis.mean_tps * basis.n / (basis.n + basis.n_pending + n_more));
  }
  return least;
}

double Projection::Added(const Basis& basis, int32_t n_more) const {
  const int32_t n_new = basis.n_pending + n_more;
  const double n_before = std::max({1.0, basis.n_running, 1.0 * n_attached_ - basis.n_pending});
  const double share = basis.n_running > 0 ? basis.n_running / n_before : 1;
  const double n_after = n_before + n_new;
  const double often = share * n_after + kOften * std::sqrt(n_after * share * (1 - share));
  return std::max(share * n_new, std::min(often, n_after) - basis.n_running);
}

std::optional<double> Projection::ByMeasure(int32_t n_more) const {
  if (!gap_per_session_) return std::nullopt;
  double longest = 0;  // seconds between two tokens
  for (const Basis& basis : bases_) {
    const double gap = 1 / basis.mean_tps;
    const double each = gap / std::max(1.0, basis.n_running);
    const double added = std::clamp(*gap_per_session_, kLeastShare * each, kMostShare * each);
    longest = std::max(longest, gap + (Added(basis, n_more) + kReserve) * added);
  }
  return 1 / longest;
}

}  // namespace polykv
