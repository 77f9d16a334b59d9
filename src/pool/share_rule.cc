#include "pool/share_rule.h"

#include "base/check.h"

namespace polykv {

ShareVerdict ShareablePrefix(const ShareSource& source, Pos wanted, bool tokens_remain) {
  POLYKV_CHECK(wanted >= 0 && wanted <= source.length);
  const bool window_is_there = source.min_pos <= 0 || source.min_pos <= wanted - source.n_swa + 1;
  if (wanted == 0) return {};
  switch (source.sharing) {
    case Sharing::kAnyPosition:
      return {.length = wanted};
    case Sharing::kWindow:
      if (!window_is_there) return {.reason = "window"};
      return {.length = wanted};
    case Sharing::kAtTip:
      if (wanted != source.length || !tokens_remain) return {.reason = "recurrent"};
      return {.length = wanted};
    case Sharing::kOff:
      break;
  }
  return {};
}

}  // namespace polykv
