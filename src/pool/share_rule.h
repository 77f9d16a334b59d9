// How much of one sequence another one may start from. Pure: forks and attaches ask the same.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "kv/model_backend.h"

namespace polykv {

// The sequence that holds the wanted tokens.
struct ShareSource {
  Sharing sharing = Sharing::kAnyPosition;
  int32_t n_swa = 0;  // ModelInfo::n_swa
  Pos length = 0;     // tokens that it holds
  Pos min_pos = 0;    // ModelBackend::MinPos
};

struct ShareVerdict {
  Pos length = 0;           // the whole of what was wanted, or 0
  const char* reason = "";  // why 0: "window" or "recurrent"; "" if nothing is or can be shared
};

// Whether the first `wanted` tokens can be shared; `tokens_remain`: others will be computed after
// them. A token after p attends to (p - n_swa, p], so behind a share of `wanted` tokens the window
// must reach back to wanted - n_swa + 1. libllama never gives up cells which the next token of the
// whole sequence needs, so a window allows all of `length`, always.
// REQUIRES: wanted <= source.length.
ShareVerdict ShareablePrefix(const ShareSource& source, Pos wanted, bool tokens_remain);

}  // namespace polykv
