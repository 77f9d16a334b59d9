// Whose turn it is when requests with different adapter sets run: a Decode computes with one set.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/adapter_set.h"

namespace polykv {

class AdapterTurn {
 public:
  // Steps that a set has in a row while others wait. Changing the set costs the model a new graph.
  static constexpr int32_t kStepsInARow = 2;

  // The set that the next step computes with, one of `wanting` (not empty): the current one while
  // its turn lasts, then the one whose last turn is longest ago. So of k sets none waits for more
  // than (k - 1) * kStepsInARow steps.
  const AdapterSet& Next(std::span<const AdapterSet* const> wanting) const;
  // A step was computed with `set`, one of `wanting`.
  void Took(const AdapterSet& set, std::span<const AdapterSet* const> wanting);

 private:
  std::vector<AdapterSet> past_;  // sets that had a turn and still want one, latest last
  int32_t n_steps_ = 0;           // of the latest in a row
};

}  // namespace polykv
