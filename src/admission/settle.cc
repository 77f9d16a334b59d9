#include "admission/settle.h"

#include <algorithm>

namespace polykv {
namespace {

constexpr double kAlpha = 0.3;  // of the newest drop in the running mean: spec §6
constexpr TimeUs kUsPerMs = 1'000;

}  // namespace

void SettleTracker::Admit(Key key, double mean_tps, TimeUs now) {
  unsettled_.push_back({.key = key, .mean_before = mean_tps, .admitted_at = now});
}

void SettleTracker::AddTokens(Key key, int32_t n, TimeUs now) {
  for (Admission& admission : unsettled_) {
    if (admission.key != key) continue;
    if (admission.first_token_at == 0) admission.first_token_at = now;
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

Settled SettleTracker::Settle(const AdmissionPolicy& policy, const Admission& admission,
                              double mean_tps) {
  Settled settled{
      .key = admission.key, .mean_before = admission.mean_before, .n_tokens = admission.n_tokens};
  const bool decoded_enough = 2 * admission.n_tokens >= policy.settle_tokens;
  if (!decoded_enough || admission.mean_before <= 0 || mean_tps <= 0) return settled;
  const double drop = std::max(0.0, admission.mean_before - mean_tps);
  drop_ewma_ = drop_ewma_ ? *drop_ewma_ + kAlpha * (drop - *drop_ewma_) : drop;
  settled.drop = drop;
  return settled;
}

std::vector<Settled> SettleTracker::Advance(const AdmissionPolicy& policy, double mean_tps,
                                            TimeUs now) {
  std::vector<Settled> ended;
  std::erase_if(unsettled_, [&](const Admission& admission) {
    const bool settled = admission.ended || admission.n_tokens >= policy.settle_tokens ||
                         now >= Deadline(policy, admission);
    if (settled) ended.push_back(Settle(policy, admission, mean_tps));
    return settled;
  });
  if (unsettled_.empty() && mean_tps > 0) {
    settled_mean_ = mean_tps;
    settled_at_ = now;
  }
  return ended;
}

Forecast SettleTracker::Look(const AdmissionPolicy& policy, TimeUs now) const {
  Forecast forecast{.n_unsettled = static_cast<int32_t>(unsettled_.size()),
                    .drop_ewma = drop_ewma_,
                    .settled_mean = settled_mean_,
                    .settled_at = settled_at_};
  for (const Admission& admission : unsettled_) {
    forecast.settle_remaining_us =
        std::max(forecast.settle_remaining_us, Deadline(policy, admission) - now);
  }
  return forecast;
}

}  // namespace polykv
