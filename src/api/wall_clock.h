// Engine stamps as Unix time.
#pragma once

#include <cstdint>

#include "base/types.h"

namespace polykv {

struct WallClock {
  int64_t unix_ms = 0;  // at engine time `now_us`
  TimeUs now_us = 0;

  int64_t UnixMs(TimeUs stamp_us) const { return unix_ms - (now_us - stamp_us) / 1000; }
};

}  // namespace polykv
