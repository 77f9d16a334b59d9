#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "kv/cell_origin.h"
#include "kv/host_bytes.h"
#include "session/checkpoint.h"

namespace polykv {

// Cells of a sequence in host memory, as they were when they were saved.
struct SavedSequence {
  std::vector<Token> tokens = {};  // of the whole sequence
  Pos begin = 0;                   // the state has the cells from here on
  Pos min_pos = 0;                 // lowest position that the memory had cells for
  CellOrigin origin = {};
  std::vector<Checkpoint> checkpoints = {};
  HostBytes state = {};         // StateParts::kAll; empty if there are no cells from `begin` on
  HostBytes shared_state = {};  // of the cells before `begin`; empty while they are in the cache

  int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
  bool is_whole() const { return begin == 0 || shared_state.size() > 0; }
  int32_t n_saved() const { return n_tokens() - (is_whole() ? 0 : begin); }  // cells
  // Cells that it takes to come back; `shares`: behind those before `begin`.
  int32_t n_cells(bool shares) const { return n_tokens() - (shares ? begin : 0); }
  int64_t n_bytes() const {  // all of it
    size_t n = tokens.size() * sizeof(Token) + state.size() + shared_state.size();
    for (const Checkpoint& checkpoint : checkpoints) n += checkpoint.state->size();
    return static_cast<int64_t>(n);
  }
};

}  // namespace polykv
