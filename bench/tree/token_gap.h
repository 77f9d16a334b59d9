#pragma once

#include <cstdint>
#include <vector>

#include "llama/llama_backend.h"

namespace polykv {

struct TokenGapPlan {
  std::vector<int32_t> cells = {8'192, 32'768, 131'072};
  int32_t steps = 5;  // of the stream before and after each share

  int32_t n_ctx() const;
  int32_t n_seq_max() const;
};

// What a share adds to the time between two tokens of a stream that decodes: the longest time
// between the end of one Decode and the begin of the next, less the median without a share. A row
// for the attach of a request and for a fork, in one go and in the engine's pieces.
void MeasureTokenGap(LlamaBackend& model, const TokenGapPlan& plan);

}  // namespace polykv
