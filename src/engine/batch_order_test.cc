#include "engine/batch_order.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pool/pool_tree.h"

namespace polykv {
namespace {

class BatchOrderTest : public ::testing::Test {
 protected:
  // A resident pool on all of the parent's cells, with two more.
  std::shared_ptr<PoolNode> Pool(const std::shared_ptr<PoolNode>& parent) {
    const Pos begin = parent != nullptr ? parent->length() : 0;
    auto node = tree_.Create({.parent = parent,
                              .branch_pos = begin,
                              .tokens = std::vector<Token>(static_cast<size_t>(begin) + 2),
                              .seq = next_seq_++});
    if (parent != nullptr) tree_.BeginOn(*node, tree_.Attach(parent, begin));
    tree_.AddMaterialized(*node, 2);
    return node;
  }

  // What becomes of one sequence on each of the pools; nullptr: on none.
  std::vector<size_t> Order(const std::vector<std::shared_ptr<PoolNode>>& pools) {
    std::vector<Sequence> sequences(pools.size());
    std::vector<const Sequence*> pointers;
    for (size_t i = 0; i < pools.size(); ++i) {
      if (pools[i] != nullptr) sequences[i].lease = tree_.Attach(pools[i], pools[i]->length());
      pointers.push_back(&sequences[i]);
    }
    return OrderBySharing(pointers);
  }

  PoolTree tree_{7000};
  SeqId next_seq_ = 4;
};

TEST_F(BatchOrderTest, PlainSequencesKeepTheirOrder) {
  EXPECT_EQ(Order({}), (std::vector<size_t>{}));
  EXPECT_EQ(Order({nullptr, nullptr, nullptr}), (std::vector<size_t>{0, 1, 2}));
}

TEST_F(BatchOrderTest, SequencesOfOnePoolAreNeighbours) {
  const auto a = Pool(nullptr);
  const auto b = Pool(nullptr);
  EXPECT_EQ(Order({b, a, nullptr, b, a}), (std::vector<size_t>{2, 1, 4, 0, 3}));
}

TEST_F(BatchOrderTest, ForksOfOnePoolAreNeighbours) {
  const auto a = Pool(nullptr);
  const auto b = Pool(nullptr);
  const auto child = Pool(a);
  const auto other_child = Pool(a);
  EXPECT_EQ(Order({other_child, b, child, a, other_child}), (std::vector<size_t>{3, 2, 0, 4, 1}));
}

}  // namespace
}  // namespace polykv
