#include "meter/step_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace polykv {
namespace {

constexpr double kNoise = 0.03;     // of a step's time, relative
constexpr double kDrift = 0.01;     // of a coefficient per step, relative …
constexpr double kMaxDrift = 0.3;   // … added up as long as nothing is learned of it
constexpr double kErrorRate = 0.1;  // weight of the newest error in the mean one
constexpr double kUsual = 3;        // mean errors up to which an error is usual
constexpr double kMinError = 0.02;
constexpr double kMinFactor = 1e-4;

// What each coefficient adds to the time of a step, in the order of StepCost.
std::array<double, 6> TermsOf(const StepCost& cost, const StepShape& shape) {
  const int32_t n_tokens = shape.n_decode + shape.n_prefill;
  if (n_tokens == 0) return {};
  const auto n_attended = static_cast<double>(shape.n_attended);
  const bool wide = n_tokens >= StepCost::kWide;
  return {cost.step_us,
          cost.decode_us * shape.n_decode,
          shape.n_prefill > 0 ? cost.prompt_us : 0,
          cost.prefill_us * shape.n_prefill,
          wide ? 0 : cost.cell_us * n_attended,
          wide ? cost.wide_cell_us * n_attended : 0};
}

template <size_t n>
double Dot(const std::array<double, n>& a, const std::array<double, n>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

double StepCost::Predict(const StepShape& shape) const {
  const auto terms = TermsOf(*this, shape);
  return std::accumulate(terms.begin(), terms.end(), 0.0);
}

void StepCostMeter::Add(const StepShape& shape, TimeUs us) {
  const double predicted = cost_.Predict(shape);
  double& mean_error = errors_[shape.n_prefill > 0 ? 1 : 0];
  const double edge = predicted * (1 + kUsual * mean_error);
  const double measured = std::clamp(static_cast<double>(us), 1.0, std::max(1.0, edge));
  mean_error += kErrorRate * (std::abs(measured - predicted) / predicted - mean_error);
  mean_error = std::max(mean_error, kMinError);

  Terms terms = TermsOf({}, shape);
  for (double& term : terms) term /= measured;
  Learn(terms, (measured - predicted) / measured);
  const StepCost defaults;
  cost_ = {.step_us = defaults.step_us * factors_[0],
           .decode_us = defaults.decode_us * factors_[1],
           .prompt_us = defaults.prompt_us * factors_[2],
           .prefill_us = defaults.prefill_us * factors_[3],
           .cell_us = defaults.cell_us * factors_[4],
           .wide_cell_us = defaults.wide_cell_us * factors_[5]};
}

void StepCostMeter::Learn(const Terms& terms, double error) {
  Terms gain;
  for (size_t i = 0; i < kTerms; ++i) gain[i] = Dot(covariance_[i], terms);
  const double variance = Dot(gain, terms) + kNoise * kNoise;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) covariance_[i][j] -= gain[i] * gain[j] / variance;
  }
  for (size_t i = 0; i < kTerms; ++i) {
    factors_[i] = std::max(kMinFactor, factors_[i] + gain[i] * error / variance);
    const double limit = kMaxDrift * factors_[i];
    const double drift = kDrift * factors_[i];
    if (terms[i] > 0 && covariance_[i][i] < limit * limit) covariance_[i][i] += drift * drift;
  }
}

double StepCostMeter::Margin(bool with_prompt) const {
  return 1 + kUsual * errors_[with_prompt ? 1 : 0];
}

}  // namespace polykv
