// What a full context gives up so that its stream can go on. Pure.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace polykv {

struct ShiftRange {  // tokens [p0, p1) are dropped
  Pos p0 = 0;
  Pos p1 = 0;
};

// llama-server's rule (pre_decode) for a sequence of `n_tokens` in a context of `n_ctx`: `n_keep`
// leading tokens stay, but at most n_ctx - 4; of the others `n_discard` are dropped (0: half),
// never all of them.
ShiftRange PlanShift(int32_t n_tokens, int32_t n_ctx, int32_t n_keep, int32_t n_discard);

}  // namespace polykv
