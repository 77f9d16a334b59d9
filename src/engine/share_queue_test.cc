#include "engine/share_queue.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kv/fake_backend.h"

namespace polykv {
namespace {

class ShareQueueTest : public testing::Test {
 protected:
  static constexpr Pos kLength = 10;

  ShareQueueTest() { Fill(backend_, kLength); }

  static void Fill(FakeBackend& backend, Pos length) {
    StepBatch batch;
    for (Pos pos = 0; pos < length; ++pos) batch.push_back({1, pos, /*seq=*/0, /*output=*/true});
    ASSERT_EQ(backend.Decode(batch), DecodeStatus::kOk);
  }
  static std::vector<Pos> UpTo(Pos n) {
    std::vector<Pos> positions(static_cast<size_t>(n));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }

  FakeBackend backend_{{.n_ctx = 64, .n_seq_max = 8}};
  ShareQueue queue_{&backend_};
};

TEST_F(ShareQueueTest, APieceIsOfThatManyCellsAndTheRestWaits) {
  queue_.Share(0, 1, 9);
  EXPECT_TRUE(queue_.Waits(1));
  EXPECT_EQ(queue_.Arrived(1, 9), 0);
  queue_.DoPiece(4);
  EXPECT_EQ(backend_.Positions(1), UpTo(4));
  EXPECT_EQ(queue_.Arrived(1, 9), 4);
  EXPECT_EQ(queue_.Arrived(1, 2), 2);
  queue_.DoPiece(4);
  queue_.DoPiece(4);
  EXPECT_EQ(backend_.Positions(1), UpTo(9));
  EXPECT_FALSE(queue_.Waits(1));
  EXPECT_TRUE(queue_.empty());
  queue_.DoPiece(4);  // of nothing
}

TEST_F(ShareQueueTest, AShareOfWhatIsStillOnItsWayIsWholeInTheEnd) {
  queue_.Share(0, 1, 9);
  queue_.DoPiece(4);
  queue_.Share(1, 2, 7);
  while (!queue_.empty()) queue_.DoPiece(2);
  EXPECT_EQ(backend_.Positions(2), UpTo(7));
}

TEST_F(ShareQueueTest, WhoeverTouchesASequenceSeesWholeShares) {
  queue_.Share(0, 1, 9);
  queue_.Share(0, 2, 5);
  queue_.Share(2, 3, 5);
  EXPECT_TRUE(queue_.Settled(2).RemoveRange(2, 0, kToEnd));
  EXPECT_EQ(backend_.Positions(3), UpTo(5)) << "it was to get them from a sequence that is gone";
  EXPECT_EQ(backend_.Positions(1), UpTo(9)) << "it was asked for earlier";
}

TEST_F(ShareQueueTest, OthersGoOnWaiting) {
  queue_.Share(0, 1, 5);
  queue_.Share(0, 2, 9);
  queue_.Settled(1);
  EXPECT_FALSE(queue_.Waits(1));
  EXPECT_TRUE(queue_.Waits(2));
  EXPECT_EQ(queue_.MinPos(2), 0) << "as if it had its cells";
  EXPECT_EQ(queue_.MinPos(3), -1);
}

TEST_F(ShareQueueTest, WhatTheSourceComputesLaterIsNotShared) {
  queue_.Clone(0, 1, kLength);
  queue_.DoPiece(4);
  ASSERT_EQ(backend_.Decode({{1, kLength, 0, true}}), DecodeStatus::kOk);
  while (!queue_.empty()) queue_.DoPiece(4);
  EXPECT_EQ(backend_.Positions(1), UpTo(kLength));
}

TEST_F(ShareQueueTest, WhereTheMomentMattersAShareIsDoneAtOnce) {
  FakeBackend recurrent({.n_ctx = 64, .n_seq_max = 8, .recurrent = true});
  Fill(recurrent, kLength);
  ShareQueue queue(&recurrent);
  queue.Clone(0, 1, kLength);
  EXPECT_FALSE(queue.Waits(1));
  EXPECT_EQ(recurrent.Positions(1), UpTo(kLength));
}

}  // namespace
}  // namespace polykv
