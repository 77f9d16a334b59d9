// What a step of the model costs, by what is in it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "kv/step_batch.h"

namespace polykv {

struct StepContent {
  int32_t n_rows = 0;           // tokens with an output
  int64_t n_row_cells = 0;      // that they attend to
  int32_t n_prompt_tokens = 0;  // the others
  int64_t n_prompt_cells = 0;   // that they attend to
};
StepContent ContentOf(const StepBatch& batch);

struct ModelCost {
  struct Point {
    double rows = 0;
    double us = 0;
  };
  std::vector<Point> decode;   // by rows, ascending; between and beyond them straight lines
  double prompt_us = 0;        // of a step with prompt tokens, once
  double prompt_token_us = 0;  // each
  double cell_us = 0;          // each cell that a token with an output attends to
  double prompt_cell_us = 0;   // or another one

  TimeUs StepUs(const StepContent& content) const;  // at least 1
};

}  // namespace polykv
