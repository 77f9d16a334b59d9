#include "pool/pool_tree.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/check.h"
#include "pool/prefix.h"

namespace polykv {

PoolLease::PoolLease(PoolTree* tree, std::shared_ptr<PoolNode> node, Pos length)
    : tree_(tree), node_(std::move(node)), length_(length) {
  tree_->AddLease(*node_, length_);
}

PoolLease::PoolLease(PoolLease&& other) noexcept
    : tree_(other.tree_), node_(std::move(other.node_)), length_(std::exchange(other.length_, 0)) {}

PoolLease& PoolLease::operator=(PoolLease&& other) noexcept {
  if (this != &other) {
    Reset();
    tree_ = other.tree_;
    node_ = std::move(other.node_);
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

void PoolLease::Reset() {
  if (node_ == nullptr) return;
  const std::shared_ptr<PoolNode> node = std::move(node_);
  node_ = nullptr;
  tree_->RemoveLease(node, std::exchange(length_, 0));
}

void PoolLease::Shrink(Pos length) {
  POLYKV_CHECK(length >= 0 && length <= length_);
  if (length == length_) return;
  if (length == 0) return Reset();
  tree_->AddLease(*node_, length);
  tree_->RemoveLease(node_, length_);
  length_ = length;
}

PoolLease PoolLease::Another() const { return {tree_, node_, length_}; }

std::shared_ptr<PoolNode> PoolTree::Create(NewPool from) {
  const Pos n_tokens = static_cast<Pos>(from.tokens.size());
  POLYKV_CHECK(from.branch_pos >= 0 && from.branch_pos <= n_tokens);
  auto node = std::make_shared<PoolNode>();
  node->id = next_id_++;
  node->prefix.hashes = CumulativeHashes(from.tokens);
  node->prefix.tokens = std::move(from.tokens);
  node->origin = std::move(from.origin);
  node->parent = std::move(from.parent);
  node->branch_pos = from.branch_pos;
  node->seq = from.seq;
  node->refs = 1;
  node->last_access = from.now;
  if (node->parent != nullptr) ++node->parent->n_children;
  nodes_.emplace(node->id, node);
  by_hash_.emplace(node->prefix.hashes.back(), node->id);
  return node;
}

std::shared_ptr<PoolNode> PoolTree::FindOrNull(PoolId id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : it->second;
}

std::shared_ptr<PoolNode> PoolTree::FindOrNull(TenantId tenant, std::string_view reference) const {
  PoolId id = kNoPool;
  const char* const end = reference.data() + reference.size();
  const auto parsed = std::from_chars(reference.data(), end, id);
  if (parsed.ec == std::errc() && parsed.ptr == end) {
    auto node = FindOrNull(id);
    return node != nullptr && node->origin.tenant == tenant ? node : nullptr;
  }
  const auto it = by_name_.find({tenant, std::string(reference)});
  return it == by_name_.end() ? nullptr : FindOrNull(it->second);
}

std::shared_ptr<PoolNode> PoolTree::FindEqualOrNull(const PoolNode* parent,
                                                    const std::vector<Token>& tokens,
                                                    const CellOrigin& origin) const {
  const auto [begin, end] = by_hash_.equal_range(CumulativeHashes(tokens).back());
  for (auto it = begin; it != end; ++it) {
    auto node = FindOrNull(it->second);
    const bool equal = node->prefix.tokens == tokens && node->origin == origin;
    if (node->parent.get() == parent && equal) return node;
  }
  return nullptr;
}

std::vector<std::shared_ptr<PoolNode>> PoolTree::Subtree(
    const std::shared_ptr<PoolNode>& root) const {
  std::vector<std::shared_ptr<PoolNode>> subtree = {root};
  std::set<const PoolNode*> members = {root.get()};
  for (auto it = nodes_.upper_bound(root->id); it != nodes_.end(); ++it) {
    if (!members.contains(it->second->parent.get())) continue;
    members.insert(it->second.get());
    subtree.push_back(it->second);
  }
  return subtree;
}

void PoolTree::AddName(PoolNode& node, std::string name) {
  POLYKV_CHECK(by_name_.emplace(std::pair(node.origin.tenant, name), node.id).second);
  node.names.push_back(std::move(name));
}

PoolLease PoolTree::Attach(const std::shared_ptr<PoolNode>& node, Pos length) {
  POLYKV_CHECK(node->residency == Residency::kResident);
  POLYKV_CHECK(length >= 0 && length <= node->length());
  return PoolLease(this, node, length);
}

void PoolTree::BeginOn(PoolNode& node, PoolLease base) {
  POLYKV_CHECK(node.residency == Residency::kMaterializing && node.n_materialized == 0);
  cells_ -= node.OwnedCells();
  node.base = std::move(base);
  node.shared_len = node.n_materialized = node.base.length();
  cells_ += node.OwnedCells();
  AddMaterialized(node, 0);
}

void PoolTree::BeginOnLeases(PoolNode& node, Pos length) {
  POLYKV_CHECK(node.residency == Residency::kMaterializing && node.n_materialized == 0);
  POLYKV_CHECK(!node.leases.empty() && length == *node.leases.rbegin());
  cells_ -= node.OwnedCells();
  node.shared_len = node.base.length();
  node.n_materialized = length;
  cells_ += node.OwnedCells();
  AddMaterialized(node, 0);
}

PoolLease PoolTree::Snapshot(const std::shared_ptr<PoolNode>& node, PoolLease lease) {
  BeginOn(*node, std::move(lease));
  const Pos n_left = node->length() - node->n_materialized;
  if (n_left > 0) AddMaterialized(*node, n_left);
  return {this, node, node->length()};
}

PoolLease PoolTree::Seal(PoolLease lease, std::vector<Token> tokens, CellOrigin origin) {
  auto node = std::make_shared<PoolNode>();
  node->prefix.tokens = std::move(tokens);
  node->origin = std::move(origin);
  node->shared_len = lease.length();
  node->base = std::move(lease);
  node->residency = Residency::kEvicted;
  node->released = true;
  released_.push_back(node);
  return {this, node, node->length()};
}

PoolLease PoolTree::Unseal(PoolLease lease) {
  if (SoleCells(lease) == 0) return lease;
  PoolLease below = std::move(lease.node_->base);
  lease.Reset();
  return below;
}

Pos PoolTree::HeldThrough(const PoolLease& lease, const PoolNode& node) {
  Pos length = lease.length();
  const PoolNode* at = lease.node();
  while (at != nullptr && at != &node) {
    length = std::min(length, at->base.length());
    at = at->base.node();
  }
  return at == &node ? length : 0;
}

int32_t PoolTree::SoleCells(const PoolLease& lease) {
  const PoolNode* node = lease.node();
  return node != nullptr && node->released && node->leases.size() == 1 ? node->OwnedCells() : 0;
}

void PoolTree::AddLease(PoolNode& node, Pos length) {
  cells_ -= node.OwnedCells();
  node.leases.insert(length);
  cells_ += node.OwnedCells();
}

void PoolTree::RemoveLease(const std::shared_ptr<PoolNode>& node, Pos length) {
  const auto it = node->leases.find(length);
  POLYKV_CHECK(it != node->leases.end());
  cells_ -= node->OwnedCells();
  node->leases.erase(it);
  cells_ += node->OwnedCells();
  if (node->seq == kNoSeq) ShrinkBase(*node);
  if (node->released && node->leases.empty()) std::erase(released_, node);
}

void PoolTree::ShrinkBase(PoolNode& node) {
  const Pos held = node.leases.empty() ? 0 : *node.leases.rbegin();
  node.base.Shrink(std::min(held, node.base.length()));
}

void PoolTree::AddMaterialized(PoolNode& node, Pos n_tokens) {
  POLYKV_CHECK(node.residency == Residency::kMaterializing);
  node.n_materialized += n_tokens;
  cells_ += n_tokens;
  POLYKV_CHECK(node.n_materialized <= node.length());
  if (node.n_materialized == node.length()) node.residency = Residency::kResident;
}

SeqId PoolTree::DropCells(PoolNode& node) {
  cells_ -= node.OwnedCells();
  const SeqId seq = std::exchange(node.seq, kNoSeq);
  node.n_materialized = 0;
  node.residency = Residency::kEvicted;
  cells_ += node.OwnedCells();
  ShrinkBase(node);
  return seq;
}

void PoolTree::BeginRebuild(PoolNode& node, SeqId seq) {
  POLYKV_CHECK(node.residency == Residency::kEvicted);
  cells_ -= node.OwnedCells();
  node.seq = seq;
  node.residency = Residency::kMaterializing;
  cells_ += node.OwnedCells();
}

void PoolTree::Release(const std::shared_ptr<PoolNode>& node) {
  POLYKV_CHECK(node->n_children == 0 && node->seq == kNoSeq && !node->released);
  node->released = true;
  if (node->parent != nullptr) --node->parent->n_children;
  nodes_.erase(node->id);
  for (const std::string& name : node->names) by_name_.erase({node->origin.tenant, name});
  const auto [begin, end] = by_hash_.equal_range(node->prefix.hashes.back());
  by_hash_.erase(std::find_if(begin, end, [&](const auto& e) { return e.second == node->id; }));
  if (!node->leases.empty()) released_.push_back(node);
}

bool PoolTree::Evictable(const PoolNode& node) {
  return node.residency == Residency::kResident && !node.pinned() && node.leases.empty();
}

std::shared_ptr<PoolNode> PoolTree::EvictableOrNull(const PoolNode* keep) const {
  std::shared_ptr<PoolNode> oldest;
  for (const auto& [id, node] : nodes_) {
    if (node.get() == keep || !Evictable(*node)) continue;
    if (oldest == nullptr || node->last_access < oldest->last_access) oldest = node;
  }
  return oldest;
}

int32_t PoolTree::EvictableCells(const PoolNode* keep) const {
  int32_t cells = 0;
  for (const auto& [id, node] : nodes_) {
    if (node.get() != keep && Evictable(*node)) cells += node->OwnedCells();
  }
  return cells;
}

bool PoolTree::MayHold(const CellOrigin& origin, const PoolLease& lease) {
  const PoolNode* node = lease.node();
  return node == nullptr || node->origin == origin;
}

void PoolTree::CheckIntegrity() const {
  int32_t cells = 0;
  std::map<const PoolNode*, int32_t> n_children;
  std::map<const PoolNode*, std::multiset<Pos>> bases;
  for (const auto& [id, node] : nodes_) {
    POLYKV_CHECK(id == node->id && !node->released);
    POLYKV_CHECK((node->seq == kNoSeq) == (node->residency == Residency::kEvicted));
    POLYKV_CHECK(node->leases.empty() || *node->leases.rbegin() <= node->length());
    POLYKV_CHECK(node->base.length() <= node->shared_len && node->shared_len <= node->length());
    if (node->n_materialized > 0) POLYKV_CHECK(node->base.length() == node->shared_len);
    POLYKV_CHECK(MayHold(node->origin, node->base));
    POLYKV_CHECK(node->parent == nullptr || nodes_.contains(node->parent->id));
    ++n_children[node->parent.get()];
    bases[node->base.node()].insert(node->base.length());
    cells += node->OwnedCells();
  }
  for (const auto& node : released_) {
    POLYKV_CHECK(node->released && !node->leases.empty());
    bases[node->base.node()].insert(node->base.length());
    cells += node->OwnedCells();
  }
  for (const auto& [id, node] : nodes_) {
    POLYKV_CHECK(node->n_children == n_children[node.get()]);
    const std::multiset<Pos>& held = bases[node.get()];
    POLYKV_CHECK(std::includes(node->leases.begin(), node->leases.end(), held.begin(), held.end()));
  }
  POLYKV_CHECK(by_hash_.size() == nodes_.size());
  POLYKV_CHECK(cells == cells_);
}

}  // namespace polykv
