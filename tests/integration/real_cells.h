// libllama's own record of its KV cells, read through an internal header: the only judge of whether
// our accounting is right.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/types.h"
#include "llama/llama_backend.h"

namespace polykv {

// By sequence that has any: its positions, ascending.
using PositionsBySequence = std::map<SeqId, std::vector<Pos>>;

struct RealCells {
  int32_t used = 0;               // cells of the attention that hold a position
  int32_t ownerless = 0;          // of them and of the window's without a sequence; must be 0
  PositionsBySequence positions;  // of the attention
  PositionsBySequence window;     // of the layers with a window
  std::map<SeqId, Pos> tips;      // the last position in each sequence's recurrent state
  int32_t n_states = 0;           // different ones
};

// Between two Decodes. REQUIRES: attention (with a window or without), a recurrent state, or both;
// unified or split.
RealCells ReadRealCells(const LlamaBackend& backend);

// [0, n), the positions of a sequence without holes.
std::vector<Pos> PositionsUpTo(Pos n);

}  // namespace polykv
