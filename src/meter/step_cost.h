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

// Learns the cost of steps from their measured times: the error of each prediction goes to the
// coefficients by the share that they have in it (normalized least mean squares on their
// logarithms' scale, so that none becomes negative). A single step that took far longer than usual,
// as one during which the machine was busy otherwise, counts as one at the edge of the usual. Not
// thread-safe; no allocation, a fixed number of operations per step.
class StepCostMeter {
 public:
  // A step of that shape, of at least one token, took `us`.
  void Add(const StepShape& shape, TimeUs us);

  const StepCost& cost() const { return cost_; }
  // What hardly a step of that shape exceeds: the prediction and a margin, which grows with the
  // errors of late. Cautious as long as few steps are known.
  double AtMost(const StepShape& shape) const;
  // Mean error of late of the steps with prompt tokens, and of those without, relative to the
  // prediction.
  double error(bool with_prompt) const { return kinds_[with_prompt ? 1 : 0].error; }

 private:
  struct Kind {
    int64_t n_steps = 0;
    double error = 0.5;
  };

  StepCost cost_;
  std::array<Kind, 2> kinds_;  // without and with prompt tokens
};

}  // namespace polykv
