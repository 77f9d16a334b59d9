// Every pool, by id, name and content, and the count of the cells that pools account for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/pool_node.h"

namespace polykv {

struct NewPool {
  std::shared_ptr<PoolNode> parent = {};  // null: a root
  Pos branch_pos = 0;                     // D
  std::vector<Token> tokens = {};         // [0, L); the first D are the parent's
  CellOrigin origin = {};
  SeqId seq = kNoSeq;
  TimeUs now = 0;
};

// Engine thread only. Outlives every lease.
class PoolTree {
 public:
  explicit PoolTree(PoolId first_id) : next_id_(first_id) {}

  // A pool that holds `seq`, nothing computed yet, with one reference and no name.
  std::shared_ptr<PoolNode> Create(NewPool from);

  std::shared_ptr<PoolNode> FindOrNull(PoolId id) const;
  // A pool of the tenant's, by decimal id or by name. Other tenants' are not there for it.
  std::shared_ptr<PoolNode> FindOrNull(TenantId tenant, std::string_view reference) const;
  // A child of `parent` (null: a root) with exactly these tokens and this origin; null if there is
  // none.
  std::shared_ptr<PoolNode> FindEqualOrNull(const PoolNode* parent,
                                            const std::vector<Token>& tokens,
                                            const CellOrigin& origin) const;
  // `root` and what is below it, every pool before its children.
  std::vector<std::shared_ptr<PoolNode>> Subtree(const std::shared_ptr<PoolNode>& root) const;

  // One more name for the pool. REQUIRES: the name is free among its tenant's.
  void AddName(PoolNode& node, std::string name);

  // A length of 0 holds no cells, but keeps the pool in use.
  // REQUIRES: resident, 0 <= length <= node's length.
  PoolLease Attach(const std::shared_ptr<PoolNode>& node, Pos length);

  // Cells [0, base.length()) of a materializing pool are there, as those that the lease is on.
  // REQUIRES: no cell of it is there yet; what others still hold of it (after an eviction) is not
  // longer than that.
  void BeginOn(PoolNode& node, PoolLease base);
  // Cells [0, length) of a pool that is rebuilt are there again, as the same ones that others still
  // hold. REQUIRES: nothing else of it is there; length is that of its longest lease.
  void BeginOnLeases(PoolNode& node, Pos length);
  // A materializing pool takes over the cells of the sequence whose tokens it has; they become the
  // pool's, those that `lease` is on remain what they are. Returns the sequence's lease on all of
  // it.
  PoolLease Snapshot(const std::shared_ptr<PoolNode>& node, PoolLease lease);

  // The cells of a sequence that holds `tokens` of `origin`, the first of them by `lease`, become a
  // node of their own, so that others can hold them too. It is in no index and lives as long as its
  // leases. Returns the sequence's lease on all of it.
  PoolLease Seal(PoolLease lease, std::vector<Token> tokens, CellOrigin origin);
  // The other way: a sequence that is the last to hold what was sealed or released owns the cells
  // again. Returns its lease on what lies below (empty: nothing does), or `lease` itself where
  // others hold the cells as well.
  PoolLease Unseal(PoolLease lease);
  // Cells that would be free if the lease ended: those that nobody else holds.
  static int32_t SoleCells(const PoolLease& lease);

  // The next `n_tokens` (0 or more) are computed; resident at full length.
  void AddMaterialized(PoolNode& node, Pos n_tokens);
  // The pool's sequence has let go of its cells; returns the sequence id, kNoSeq if it had none.
  SeqId DropCells(PoolNode& node);
  void BeginRebuild(PoolNode& node, SeqId seq);  // REQUIRES: evicted
  // How many of the pool's tokens another node or a sequence holds, whose lease `lease` is, as the
  // very cells of the pool; 0: it has nothing of it.
  static Pos HeldThrough(const PoolLease& lease, const PoolNode& node);
  // Takes the node out of every index. Its leases stay valid. REQUIRES: no children, cells dropped.
  void Release(const std::shared_ptr<PoolNode>& node);

  // Whether a want of cells or sequences, or the end of its grace, may evict the pool: resident,
  // unpinned, and nobody holds its cells. (A child that is evicted itself holds none.)
  static bool Evictable(const PoolNode& node);
  // The least recently used of them; null if there is none. `keep` is never chosen.
  std::shared_ptr<PoolNode> EvictableOrNull(const PoolNode* keep) const;
  int32_t EvictableCells(const PoolNode* keep) const;

  int32_t cells() const { return cells_; }  // owned by pools, released ones included
  const std::map<PoolId, std::shared_ptr<PoolNode>>& nodes() const { return nodes_; }

  // Whether what is leased is of that origin, as it must be for whoever holds the lease.
  static bool MayHold(const CellOrigin& origin, const PoolLease& lease);
  // Recounts everything; aborts on a difference.
  void CheckIntegrity() const;

 private:
  friend class PoolLease;
  void AddLease(PoolNode& node, Pos length);
  void RemoveLease(const std::shared_ptr<PoolNode>& node, Pos length);
  void ShrinkBase(PoolNode& node);

  PoolId next_id_;
  std::map<PoolId, std::shared_ptr<PoolNode>> nodes_;
  std::map<std::pair<TenantId, std::string>, PoolId> by_name_;
  std::unordered_multimap<uint64_t, PoolId> by_hash_;  // hash of the whole prefix
  std::vector<std::shared_ptr<PoolNode>> released_;    // with leases still out
  int32_t cells_ = 0;
};

}  // namespace polykv
