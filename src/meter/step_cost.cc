#include "meter/step_cost.h"

#include <algorithm>
#include <cmath>

namespace polykv {
namespace {

constexpr double kRate = 0.1;       // share of an error that is corrected at once …
constexpr double kErrorRate = 0.1;  // weight of the newest error in the mean one
constexpr double kUsual = 3;        // mean errors up to which an error is usual
constexpr double kMinError = 0.02;
constexpr double kMaxShrink = 0.2;  // a coefficient's smallest factor in one step

constexpr size_t kTerms = 6;
using Terms = std::array<double, kTerms>;

// What each coefficient adds to the prediction.
Terms TermsOf(const StepCost& cost, const StepShape& shape) {
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

double Sum(const Terms& terms) {
  double sum = 0;
  for (const double term : terms) sum += term;
  return sum;
}

}  // namespace

double StepCost::Predict(const StepShape& shape) const { return Sum(TermsOf(*this, shape)); }

void StepCostMeter::Add(const StepShape& shape, TimeUs us) {
  const Terms terms = TermsOf(cost_, shape);
  const double predicted = Sum(terms);
  Kind& kind = kinds_[shape.n_prefill > 0 ? 1 : 0];
  ++kind.n_steps;
  const double edge = kUsual * kind.error;
  const double error =
      std::clamp((std::max(1.0, static_cast<double>(us)) - predicted) / predicted, -1.0, edge);
  kind.error += kErrorRate * (std::abs(error) - kind.error);
  kind.error = std::max(kind.error, kMinError);

  double squares = 0;
  for (const double term : terms) squares += term * term;
  const double rate = std::max(kRate, 1.0 / static_cast<double>(kind.n_steps));
  double* const coefficients[kTerms] = {&cost_.step_us,    &cost_.decode_us, &cost_.prompt_us,
                                        &cost_.prefill_us, &cost_.cell_us,   &cost_.wide_cell_us};
  for (size_t i = 0; i < kTerms; ++i) {
    const double change = rate * error * predicted * terms[i] / squares;
    *coefficients[i] *= std::max(kMaxShrink, 1 + change);
  }
}

double StepCostMeter::AtMost(const StepShape& shape) const {
  return cost_.Predict(shape) * (1 + kUsual * error(shape.n_prefill > 0));
}

}  // namespace polykv
