// In which order a step computes the streams' tokens. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "session/sequence.h"

namespace polykv {

// Indices of the sequences, such that those that hold the same pool's cells are next to each other,
// and those of pools with a common beginning too: attention then reads these cells once for several
// of them. Otherwise, and among sequences without a pool, which come first, the order is the given.
std::vector<size_t> OrderBySharing(std::span<const Sequence* const> sequences);

}  // namespace polykv
