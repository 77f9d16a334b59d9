// Next-token distributions and how far they are apart.
#pragma once

#include <algorithm>
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

// Distributions at the tokens of a suffix, in order.
using Answers = std::vector<Distribution>;

struct Difference {
  double divergence = 0;      // worst next-token KLD
  double flipped_margin = 0;  // widest top-two margin of the reference at which top-1 differs

  void Add(const Difference& other) {
    divergence = std::max(divergence, other.divergence);
    flipped_margin = std::max(flipped_margin, other.flipped_margin);
  }
};

// Aligned at the end: `other` may have fewer answers.
Difference Compare(const Answers& reference, const Answers& other);

}  // namespace polykv
