#include "llama/token_probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace polykv {

TokenProbabilities::TokenProbabilities(std::span<const float> logits, size_t n_top)
    : logits_(logits), max_logit_(*std::max_element(logits.begin(), logits.end())) {
  std::vector<Token> order(logits_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [this](Token token) { return logits_[static_cast<size_t>(token)]; };
  n_top = std::min(n_top, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n_top), order.end(),
                    [&](Token a, Token b) { return logit(a) > logit(b); });
  for (const Token token : order) sum_ += std::exp(logit(token) - max_logit_);
  order.resize(n_top);
  top_.reserve(n_top);
  for (const Token token : order) top_.emplace_back(token, Of(token));
}

float TokenProbabilities::Of(Token token) const {
  POLYKV_CHECK(token >= 0 && static_cast<size_t>(token) < logits_.size());
  return std::exp(logits_[static_cast<size_t>(token)] - max_logit_) / sum_;
}

}  // namespace polykv
