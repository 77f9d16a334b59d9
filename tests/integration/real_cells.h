// libllama's own record of its KV cells, read through an internal header: the only judge of whether
// our accounting is right.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/types.h"
#include "llama/llama_backend.h"

namespace polykv {

struct RealCells {
  int32_t used = 0;       // cells that hold a position
  int32_t ownerless = 0;  // of them without a sequence; must be 0
  // Per sequence that has any: its positions, ascending.
  std::map<SeqId, std::vector<Pos>> positions;
};

// Between two Decodes. REQUIRES: a unified cache of plain attention.
RealCells ReadRealCells(const LlamaBackend& backend);

// [0, n), the positions of a sequence without holes.
std::vector<Pos> PositionsUpTo(Pos n);

}  // namespace polykv
