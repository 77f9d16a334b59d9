#pragma once

#include <cstdint>
#include <memory>

#include "base/types.h"
#include "kv/host_bytes.h"

namespace polykv {

// What a sequence's memory that cannot go back (window, recurrent state) was at an earlier length.
// Loading it makes the sequence one of that length again, as far as its other cells are there.
struct Checkpoint {
  int64_t task_id = 0;                     // of the request that made it
  Pos n_tokens = 0;                        // > 0
  Pos min_pos = 0;                         // lowest position that the memory had cells for
  std::shared_ptr<const HostBytes> state;  // StateParts::kUnremovable; never null

  Pos last_pos() const { return n_tokens - 1; }
};

}  // namespace polykv
