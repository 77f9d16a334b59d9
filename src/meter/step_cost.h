// How long a step of the model takes, as a function of what it computes; learned from steps.
#pragma once

#include <array>
#include <cstdint>

#include "base/types.h"

namespace polykv {

// What a step computes.
struct StepShape {
  int32_t n_decode = 0;    // tokens of streams that decode, drafts included
  int32_t n_prefill = 0;   // tokens of prompts and pools
  int64_t n_attended = 0;  // cells before each token, added up over all tokens

  // `n` tokens more, of one sequence, from position `begin` on.
  void AddDecode(int32_t n, Pos begin) {
    n_decode += n;
    Attend(n, begin);
  }
  void AddPrefill(int32_t n, Pos begin) {
    n_prefill += n;
    Attend(n, begin);
  }

 private:
  void Attend(int64_t n, Pos begin) { n_attended += n * begin + n * (n - 1) / 2; }
};

// Linear in the shape, but for one bend: ggml's attention on CPUs takes tokens together, and
// several times less time for each, in steps of at least kWide tokens. The defaults are a guess on
// the slow side.
struct StepCost {
  static constexpr int32_t kWide = 64;

  double step_us = 20'000;    // of every step
  double decode_us = 5'000;   // of a decode token
  double prompt_us = 20'000;  // of a step with prompt tokens, once
  double prefill_us = 8'000;  // of a prompt token
  double cell_us = 5;         // of an attended cell in a step of fewer than kWide tokens …
  double wide_cell_us = 2;    // … and in one of more

  double Predict(const StepShape& shape) const;  // µs; a step without tokens takes none
};

// Learns the cost of steps from their measured times: recursive least squares on relative errors
// (a Kalman filter whose state drifts slowly), from the defaults of StepCost on. A step that took
// far longer than usual, as one during which the machine was busy otherwise, counts as one at the
// edge of the usual. Not thread-safe; no allocation, a fixed number of operations per step.
class StepCostMeter {
 public:
  // A step of that shape, of at least one token, took `us`.
  void Add(const StepShape& shape, TimeUs us);

  const StepCost& cost() const { return cost_; }
  // A factor: hardly a step with prompt tokens, or without, takes so many times what is predicted.
  // Large as long as few steps are known, then by how wrong predictions were of late.
  double Margin(bool with_prompt) const;
  // What hardly a step of that shape exceeds.
  double AtMost(const StepShape& shape) const {
    return Margin(shape.n_prefill > 0) * cost_.Predict(shape);
  }

 private:
  static constexpr size_t kTerms = 6;
  using Terms = std::array<double, kTerms>;  // one for each coefficient, in their order

  void Learn(const Terms& terms, double error);

  StepCost cost_;
  Terms factors_ = {1, 1, 1, 1, 1, 1};  // of the defaults: the coefficients
  std::array<Terms, kTerms> covariance_ = {
      Terms{1},          Terms{0, 1},          Terms{0, 0, 1},
      Terms{0, 0, 0, 1}, Terms{0, 0, 0, 0, 1}, Terms{0, 0, 0, 0, 0, 1}};  // of the factors
  // Mean error of late, relative to the prediction, of steps without and with prompt tokens.
  std::array<double, 2> errors_ = {0.5, 0.5};
};

}  // namespace polykv
