#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "kv/cell_origin.h"
#include "meter/histogram.h"
#include "pool/pool_lease.h"

namespace polykv {

enum class Residency { kMaterializing, kResident, kEvicted };

// What a pool is: sealed at creation, const ever after.
struct PoolPrefix {
  std::vector<Token> tokens;     // [0, L)
  std::vector<uint64_t> hashes;  // parallel, cumulative (pool/prefix.h)
};

// One node of the pool tree. It owns the cells [shared_len, L) that it computed; the tree below it
// and the sequences attached to it hold them too. Engine thread only.
struct PoolNode {
  // Constant after construction.
  PoolId id = kNoPool;
  PoolPrefix prefix;
  CellOrigin origin;                 // of its cells
  std::shared_ptr<PoolNode> parent;  // null at a root
  Pos branch_pos = 0;                // D: tokens [0, D) are the parent's

  // Cells. Changed by PoolTree only, which counts them.
  SeqId seq = kNoSeq;  // kNoSeq: evicted or released
  // Cells [0, shared_len) are physically another node's: the parent's, at most D, or those that the
  // session held of its own pool whose snapshot this is.
  Pos shared_len = 0;
  PoolLease base;             // on them, never longer than what is held here; empty: none is shared
  Pos n_materialized = 0;     // cells [shared_len, n_materialized) are there
  std::multiset<Pos> leases;  // of sequences and of other nodes' bases: each shares [0, p)
  Residency residency = Residency::kMaterializing;
  bool released = false;  // no longer in the tree; lives on while it has leases

  std::vector<std::string> names;  // the first is shown

  // Lifetime.
  int32_t refs = 0;
  std::map<std::string, TimeUs> pins;  // by the key that the client gave; until when, 0: no limit
  TimeUs release_at = 0;               // when refs is 0; 0: not scheduled
  TimeUs last_access = 0;
  int32_t n_children = 0;  // in the tree

  uint64_t hits = 0;
  uint64_t queries = 0;
  LatencyMeters latency;                           // of the requests of its sessions
  std::map<std::string_view, uint64_t> decisions;  // of the admission gate on them, by name

  Pos length() const { return static_cast<Pos>(prefix.tokens.size()); }
  bool pinned() const { return !pins.empty(); }
  bool in_use() const { return n_children > 0 || !leases.empty(); }
  // Cells that this node accounts for: its own range while it holds a sequence, else the part of it
  // that the longest lease keeps alive.
  int32_t OwnedCells() const {
    const Pos end = seq != kNoSeq ? n_materialized : (leases.empty() ? 0 : *leases.rbegin());
    return end > shared_len ? end - shared_len : 0;
  }
};

}  // namespace polykv
