#include "engine/context_shift.h"

#include <algorithm>

namespace polykv {

ShiftRange PlanShift(int32_t n_tokens, int32_t n_ctx, int32_t n_keep, int32_t n_discard) {
  constexpr int32_t kNeverKept = 4;
  const int32_t p0 = std::clamp(n_keep, 0, std::max(0, n_ctx - kNeverKept));
  const int32_t n_left = n_tokens - p0;
  const int32_t wanted = n_discard > 0 ? n_discard : n_left / 2;
  return {p0, p0 + std::clamp(wanted, 0, std::max(0, n_left - 1))};
}

}  // namespace polykv
