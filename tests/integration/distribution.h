// Next-token distributions and how far they are apart.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace polykv {

using Distribution = std::vector<double>;  // log-probabilities over the vocabulary

Distribution LogSoftmax(std::span<const float> logits);

// Kullback-Leibler divergence KLD(reference || other) in nats.
double Divergence(const Distribution& reference, const Distribution& other);

struct TopTwo {
  size_t token;   // the most probable
  double margin;  // nats between it and the second
};
TopTwo FindTopTwo(const Distribution& distribution);

}  // namespace polykv
