// What the kernels' tables and registers are laid out for.
#pragma once

#include <cstdint>

namespace polykv {

inline constexpr int64_t kTile = 64;            // cells of a tile; the bits of one word
inline constexpr int64_t kMaxHeadSize = 256;    // values
inline constexpr int64_t kHeadSizeStep = 16;    // the widest vector
inline constexpr int64_t kMaxGroup = 32;        // query heads of one key head
inline constexpr int64_t kMaxBlockTokens = 48;  // query tokens that are computed together
inline constexpr int64_t kMaxChunks =
    32;  // parts of the cells that a block's result is merged from

}  // namespace polykv
