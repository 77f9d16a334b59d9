#include "pool/pool_tree.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

class PoolTreeTest : public ::testing::Test {
 protected:
  ~PoolTreeTest() override { tree_.CheckIntegrity(); }

  std::shared_ptr<PoolNode> Resident(std::vector<Token> tokens, TimeUs now = 0) {
    const auto n = static_cast<Pos>(tokens.size());
    auto node = tree_.CreateRoot(std::move(tokens), {}, next_seq_++, now);
    tree_.AddMaterialized(*node, n);
    return node;
  }

  PoolTree tree_{7000};
  SeqId next_seq_ = 4;
};

TEST_F(PoolTreeTest, IsFoundByIdByNameAndByContent) {
  const auto node = Resident({1, 2, 3});
  tree_.AddName(*node, "docs");
  EXPECT_EQ(node->id, 7000);
  EXPECT_EQ(tree_.FindOrNull("7000"), node);
  EXPECT_EQ(tree_.FindOrNull("docs"), node);
  EXPECT_EQ(tree_.FindRootOrNull({1, 2, 3}, {}), node);
  EXPECT_EQ(tree_.FindRootOrNull({1, 2}, {}), nullptr);
  EXPECT_EQ(tree_.FindRootOrNull({1, 2, 3}, AdapterSet({{0, 1.0F}}, 1)), nullptr);
  EXPECT_EQ(tree_.FindOrNull("700"), nullptr);
  EXPECT_EQ(tree_.FindOrNull("docs "), nullptr);
  EXPECT_EQ(tree_.FindOrNull(""), nullptr);
}

TEST_F(PoolTreeTest, BecomesResidentAtFullLength) {
  const auto node = tree_.CreateRoot({1, 2, 3}, {}, 4, 0);
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
  pinned->pinned = true;
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
  EXPECT_EQ(tree_.FindOrNull("a"), nullptr);
  const auto next = Resident({1, 2});
  tree_.AddName(*next, "b");
  EXPECT_EQ(tree_.FindOrNull("b"), next);
  EXPECT_GT(next->id, node->id);
}

}  // namespace
}  // namespace polykv
