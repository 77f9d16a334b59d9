#include "pool/pool_tree.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

class PoolTreeTest : public ::testing::Test {
 protected:
  ~PoolTreeTest() override { tree_.CheckIntegrity(); }

  std::shared_ptr<PoolNode> Resident(std::vector<Token> tokens, TimeUs now = 0) {
    const auto n = static_cast<Pos>(tokens.size());
    auto node = tree_.Create({.tokens = std::move(tokens), .seq = next_seq_++, .now = now});
    tree_.AddMaterialized(*node, n);
    return node;
  }
  // A resident child that shares all of [0, D).
  std::shared_ptr<PoolNode> Child(const std::shared_ptr<PoolNode>& parent, Pos branch_pos,
                                  std::vector<Token> own) {
    std::vector<Token> tokens(parent->prefix.tokens.begin(),
                              parent->prefix.tokens.begin() + branch_pos);
    tokens.insert(tokens.end(), own.begin(), own.end());
    auto node = tree_.Create({.parent = parent,
                              .branch_pos = branch_pos,
                              .tokens = std::move(tokens),
                              .seq = next_seq_++});
    if (branch_pos > 0) tree_.BeginOn(*node, tree_.Attach(parent, branch_pos));
    tree_.AddMaterialized(*node, static_cast<Pos>(own.size()));
    return node;
  }

  PoolTree tree_{7000};
  SeqId next_seq_ = 4;
};

TEST_F(PoolTreeTest, IsFoundByIdByNameAndByContent) {
  const auto node = Resident({1, 2, 3});
  tree_.AddName(*node, "docs");
  EXPECT_EQ(node->id, 7000);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "7000"), node);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "docs"), node);
  EXPECT_EQ(tree_.FindEqualOrNull(nullptr, {1, 2, 3}, {}), node);
  EXPECT_EQ(tree_.FindEqualOrNull(nullptr, {1, 2}, {}), nullptr);
  EXPECT_EQ(tree_.FindEqualOrNull(nullptr, {1, 2, 3}, {AdapterSet({{0, 1.0F}}, 1)}), nullptr);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "700"), nullptr);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "docs "), nullptr);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, ""), nullptr);
}

TEST_F(PoolTreeTest, EqualPoolsAndNamesOfTwoTenantsAreApart) {
  const auto create = [this](TenantId tenant) {
    auto node = tree_.Create({.tokens = {1, 2}, .origin = {.tenant = tenant}, .seq = next_seq_++});
    tree_.AddName(*node, "docs");
    return node;
  };
  const auto first = create(1);
  const auto second = create(2);
  EXPECT_EQ(tree_.FindOrNull(1, "docs"), first);
  EXPECT_EQ(tree_.FindOrNull(2, "docs"), second);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "docs"), nullptr);
  EXPECT_EQ(tree_.FindOrNull(1, std::to_string(first->id)), first);
  EXPECT_EQ(tree_.FindOrNull(2, std::to_string(first->id)), nullptr);
  EXPECT_EQ(tree_.FindEqualOrNull(nullptr, {1, 2}, {.tenant = 2}), second);
  EXPECT_EQ(tree_.FindEqualOrNull(nullptr, {1, 2}, {}), nullptr);
  tree_.DropCells(*first);
  tree_.Release(first);
  EXPECT_EQ(tree_.FindOrNull(1, "docs"), nullptr);
  EXPECT_EQ(tree_.FindOrNull(2, "docs"), second);
}

TEST_F(PoolTreeTest, BecomesResidentAtFullLength) {
  const auto node = tree_.Create({.tokens = {1, 2, 3}, .seq = 4});
  tree_.AddMaterialized(*node, 2);
  EXPECT_EQ(node->residency, Residency::kMaterializing);
  EXPECT_EQ(tree_.cells(), 2);
  tree_.AddMaterialized(*node, 1);
  EXPECT_EQ(node->residency, Residency::kResident);
  EXPECT_EQ(tree_.cells(), 3);
}

TEST_F(PoolTreeTest, AReleasedPoolCountsTheCellsThatLeasesKeepAlive) {
  auto node = Resident({1, 2, 3, 4});
  PoolLease longer = tree_.Attach(node, 3);
  PoolLease shorter = tree_.Attach(node, 2);
  EXPECT_EQ(tree_.cells(), 4);
  tree_.DropCells(*node);
  tree_.Release(node);
  EXPECT_EQ(tree_.FindOrNull(node->id), nullptr);
  EXPECT_EQ(tree_.cells(), 3);
  longer.Shrink(1);
  EXPECT_EQ(tree_.cells(), 2);
  shorter.Reset();
  EXPECT_EQ(tree_.cells(), 1);
  longer = PoolLease();
  EXPECT_EQ(tree_.cells(), 0);
}

TEST_F(PoolTreeTest, EvictsTheLeastRecentlyUsedThatNobodyUses) {
  const auto in_use = Resident({1}, 1);
  const auto pinned = Resident({2}, 2);
  const auto old = Resident({3}, 3);
  const auto young = Resident({4}, 4);
  const PoolLease lease = tree_.Attach(in_use, 1);
  pinned->pins[""] = 0;
  EXPECT_EQ(tree_.EvictableOrNull(nullptr), old);
  EXPECT_EQ(tree_.EvictableOrNull(old.get()), young);
  EXPECT_EQ(tree_.EvictableCells(nullptr), 2);
  tree_.DropCells(*old);
  EXPECT_EQ(tree_.EvictableOrNull(nullptr), young);
}

TEST_F(PoolTreeTest, ANameIsFreeAgainAfterTheRelease) {
  auto node = Resident({1, 2});
  tree_.AddName(*node, "a");
  tree_.AddName(*node, "b");
  tree_.DropCells(*node);
  tree_.Release(node);
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "a"), nullptr);
  const auto next = Resident({1, 2});
  tree_.AddName(*next, "b");
  EXPECT_EQ(tree_.FindOrNull(kEverybody, "b"), next);
  EXPECT_GT(next->id, node->id);
}

TEST_F(PoolTreeTest, AChildOwnsOnlyWhatIsBehindItsBranch) {
  const auto root = Resident({1, 2, 3, 4});
  const auto extended = Child(root, 4, {5, 6});
  const auto branch = Child(root, 2, {7});
  const auto apart = Child(root, 0, {8, 9});
  EXPECT_EQ(extended->OwnedCells(), 2);
  EXPECT_EQ(branch->OwnedCells(), 1);
  EXPECT_EQ(apart->OwnedCells(), 2);
  EXPECT_EQ(tree_.cells(), 9);
  EXPECT_EQ(root->n_children, 3);
  EXPECT_EQ(tree_.FindEqualOrNull(root.get(), {1, 2, 7}, {}), branch);
  EXPECT_EQ(tree_.FindEqualOrNull(nullptr, {1, 2, 7}, {}), nullptr);
  EXPECT_EQ(tree_.Subtree(root).size(), 4U);
  EXPECT_EQ(tree_.Subtree(branch).size(), 1U);
}

TEST_F(PoolTreeTest, AnEvictedChildLetsItsParentGo) {
  const auto root = Resident({1, 2, 3, 4});
  const auto child = Child(root, 3, {5});
  EXPECT_FALSE(PoolTree::Evictable(*root));
  EXPECT_TRUE(PoolTree::Evictable(*child));
  tree_.DropCells(*child);
  EXPECT_TRUE(PoolTree::Evictable(*root));
  EXPECT_TRUE(root->in_use());
  EXPECT_EQ(tree_.cells(), 4);
}

TEST_F(PoolTreeTest, AnEvictedParentCountsWhatItsChildHolds) {
  const auto root = Resident({1, 2, 3, 4});
  const auto child = Child(root, 3, {5});
  const auto grandchild = Child(child, 2, {6});
  tree_.DropCells(*root);
  EXPECT_EQ(root->OwnedCells(), 3);
  EXPECT_EQ(tree_.cells(), 3 + 1 + 1);
  EXPECT_EQ(PoolTree::HeldThrough(child->base, *root), 3);
  EXPECT_EQ(PoolTree::HeldThrough(grandchild->base, *root), 2);
  tree_.BeginRebuild(*root, 20);
  tree_.BeginOnLeases(*root, 3);
  EXPECT_EQ(root->residency, Residency::kMaterializing);
  tree_.AddMaterialized(*root, 1);
  EXPECT_EQ(root->residency, Residency::kResident);
  EXPECT_EQ(tree_.cells(), 4 + 1 + 1);
}

TEST_F(PoolTreeTest, ASnapshotTakesOverWhatTheSequenceOwned) {
  const auto root = Resident({1, 2, 3, 4});
  PoolLease lease = tree_.Attach(root, 3);
  // The sequence holds {1, 2, 3} of the root and two cells of its own.
  const auto node = tree_.Create({.tokens = {1, 2, 3, 8, 9}, .seq = 9});
  lease = tree_.Snapshot(node, std::move(lease));
  EXPECT_EQ(node->residency, Residency::kResident);
  EXPECT_EQ(node->OwnedCells(), 2);
  EXPECT_EQ(lease.node(), node.get());
  EXPECT_EQ(lease.length(), 5);
  EXPECT_EQ(tree_.cells(), 6);
  EXPECT_EQ(root->n_children, 0);
  EXPECT_FALSE(PoolTree::Evictable(*root));
  tree_.DropCells(*node);
  tree_.Release(node);
  EXPECT_EQ(tree_.cells(), 6) << "the sequence still holds all of it";
  lease = tree_.Unseal(std::move(lease));
  EXPECT_EQ(lease.node(), root.get());
  EXPECT_EQ(lease.length(), 3);
  EXPECT_EQ(tree_.cells(), 4);
}

}  // namespace
}  // namespace polykv
