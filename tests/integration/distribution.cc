#include "integration/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polykv {

Distribution LogSoftmax(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  const double log_sum = max + std::log(sum);
  Distribution distribution;
  distribution.reserve(logits.size());
  for (const float logit : logits) distribution.push_back(logit - log_sum);
  return distribution;
}

double Divergence(const Distribution& reference, const Distribution& other) {
  double divergence = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    divergence += std::exp(reference[i]) * (reference[i] - other[i]);
  }
  return std::max(divergence, 0.0);
}

TopTwo FindTopTwo(const Distribution& distribution) {
  const auto first = std::max_element(distribution.begin(), distribution.end());
  double second = -std::numeric_limits<double>::infinity();
  for (auto it = distribution.begin(); it != distribution.end(); ++it) {
    if (it != first) second = std::max(second, *it);
  }
  return {.token = static_cast<size_t>(first - distribution.begin()), .margin = *first - second};
}

Difference Compare(const Answers& reference, const Answers& other) {
  Difference difference;
  const size_t skipped = reference.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    const Distribution& expected = reference[i + skipped];
    difference.divergence = std::max(difference.divergence, Divergence(expected, other[i]));
    const TopTwo top = FindTopTwo(expected);
    if (FindTopTwo(other[i]).token != top.token) {
      difference.flipped_margin = std::max(difference.flipped_margin, top.margin);
    }
  }
  return difference;
}

}  // namespace polykv
