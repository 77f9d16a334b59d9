// The tokens of one engine step.
#pragma once

#include <vector>

#include "base/types.h"

namespace polykv {

struct BatchToken {
  Token token;
  Pos pos;
  SeqId seq;
  bool output;  // logits wanted at this token
};

using StepBatch = std::vector<BatchToken>;  // at most ModelInfo::n_batch entries

}  // namespace polykv
