// The distribution that the model itself gives, before any sampler touched it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/types.h"

namespace polykv {

// Softmax over `logits`, with the `n_top` most probable tokens in order.
// Source: llama-server's get_token_probabilities (tools/server/server-common.cpp). Same float
// arithmetic in the same order (the sum runs over the partially sorted tokens), so that logprobs
// are equal to the last bit; n_top therefore matters to them, as it does there.
class TokenProbabilities {
 public:
  // `logits` outlives the object. REQUIRES: logits not empty.
  TokenProbabilities(std::span<const float> logits, size_t n_top);

  float Of(Token token) const;  // REQUIRES: 0 <= token < logits.size()

  // min(n_top, logits.size()) entries, most probable first.
  const std::vector<std::pair<Token, float>>& top() const { return top_; }

 private:
  std::span<const float> logits_;
  float max_logit_ = 0;
  float sum_ = 0;  // of exp(logit - max_logit_)
  std::vector<std::pair<Token, float>> top_;
};

}  // namespace polykv
