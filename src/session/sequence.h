#pragma once

#include <vector>

#include "base/types.h"
#include "kv/cell_origin.h"
#include "pool/pool_tree.h"
#include "session/checkpoint.h"

namespace polykv {

// One sequence of the cache and what it holds: cells [0, lease.length()) belong to a pool, the rest
// is private. Changed through SequenceCache only, which keeps model, tokens and count in step.
struct Sequence {
  SeqId id = kNoSeq;          // kNoSeq: holds nothing
  std::vector<Token> tokens;  // parallel to the cells [0, n)
  PoolLease lease;
  CellOrigin origin;                    // of all its cells
  std::vector<Checkpoint> checkpoints;  // oldest first
  // It came back from host memory: a window's cells below this may be missing, whatever the lowest
  // position is. 0: none is.
  Pos gap_end = 0;

  int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t n_private() const { return n_tokens() - lease.length(); }
};

}  // namespace polykv
