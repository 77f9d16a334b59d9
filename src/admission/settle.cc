#include "admission/settle.h"

#include <algorithm>
#include <utility>

namespace polykv {
namespace {

constexpr double kDropAlpha = 0.3;  // of the newest sample in the running mean: spec §6
constexpr double kGapAlpha = 0.5;   // quicker: where each session costs more than the one before
constexpr TimeUs kUsPerMs = 1'000;
constexpr double kSmoothUs = 3e6;    // a prompt that stalls others for a moment is no new level
constexpr double kFewestMore = 0.5;  // running sessions, for a sample of what one more costs

void Fold(double sample, double alpha, std::optional<double>* mean) {
  *mean = *mean ? **mean + alpha * (sample - **mean) : sample;
}

}  // namespace

void SettleTracker::Admit(Key key, const Rate& rate, TimeUs now) {
  const bool settled = unsettled_.empty() && settled_.mean_tps > 0 && rate.mean_tps > 0;
  unsettled_.push_back({.key = key, .before = settled ? settled_ : rate, .admitted_at = now});
}

void SettleTracker::AddTokens(Key key, int32_t n, TimeUs now) {
  for (Admission& admission : unsettled_) {
    if (admission.key != key) continue;
    if (admission.first_token_at == 0) {
      admission.first_token_at = level_since_ = now;
      level_ = {};
    }
    admission.n_tokens += n;
  }
}

void SettleTracker::End(Key key) {
  for (Admission& admission : unsettled_) {
    if (admission.key == key) admission.ended = true;
  }
}

TimeUs SettleTracker::Deadline(const AdmissionPolicy& policy, const Admission& admission) {
  const TimeUs max_us = policy.settle_max_ms * kUsPerMs;
  const TimeUs latest_start = admission.admitted_at + max_us;
  const TimeUs start = admission.first_token_at > 0
                           ? std::min(admission.first_token_at, latest_start)
                           : latest_start;
  return start + max_us;
}

Settled SettleTracker::Settle(const AdmissionPolicy& policy, const Admission& admission) {
  const Rate& before = admission.before;
  Settled settled{.key = admission.key,
                  .mean_before = before.mean_tps,
                  .mean_tps = level_.mean_tps,
                  .n_tokens = admission.n_tokens};
  if (2 * admission.n_tokens < policy.settle_tokens) {
    if (before.mean_tps > 0) level_ = before;  // it has shown nothing
    return settled;
  }
  if (before.mean_tps <= 0 || level_.mean_tps <= 0) return settled;
  settled.drop = std::max(0.0, before.mean_tps - level_.mean_tps);
  Fold(*settled.drop, kDropAlpha, &drop_ewma_);
  const double n_more = level_.n_running - before.n_running;
  const double gap_more = std::max(0.0, 1 / level_.mean_tps - 1 / before.mean_tps);
  if (n_more >= kFewestMore) Fold(gap_more / n_more, kGapAlpha, &gap_per_session_);
  return settled;
}

void SettleTracker::Follow(const Rate& rate, TimeUs now) {
  const auto passed = static_cast<double>(now - std::exchange(advanced_at_, now));
  if (rate.mean_tps <= 0) return;
  const double span = std::clamp(static_cast<double>(now - level_since_), 1.0, kSmoothUs);
  const double weight = level_.mean_tps > 0 ? std::min(1.0, passed / span) : 1;
  level_.mean_tps += weight * (rate.mean_tps - level_.mean_tps);
  level_.n_running += weight * (rate.n_running - level_.n_running);
}

std::vector<Settled> SettleTracker::Advance(const AdmissionPolicy& policy, const Rate& rate,
                                            TimeUs now) {
  Follow(rate, now);
  std::vector<Settled> ended;
  std::erase_if(unsettled_, [&](const Admission& admission) {
    const bool settled = admission.ended || admission.n_tokens >= policy.settle_tokens ||
                         now >= Deadline(policy, admission);
    if (settled) ended.push_back(Settle(policy, admission));
    return settled;
  });
  if (unsettled_.empty() && rate.mean_tps > 0) {
    settled_ = level_;
    settled_at_ = now;
  }
  return ended;
}

Forecast SettleTracker::Look(const AdmissionPolicy& policy, TimeUs now) const {
  Forecast forecast{.n_unsettled = static_cast<int32_t>(unsettled_.size()),
                    .drop_ewma = drop_ewma_,
                    .gap_per_session = gap_per_session_,
                    .settled_mean = settled_.mean_tps,
                    .settled_running = settled_.n_running,
                    .settled_at = settled_at_};
  for (const Admission& admission : unsettled_) {
    forecast.settle_remaining_us =
        std::max(forecast.settle_remaining_us, Deadline(policy, admission) - now);
  }
  return forecast;
}

}  // namespace polykv
