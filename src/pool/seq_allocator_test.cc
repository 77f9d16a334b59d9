#include "pool/seq_allocator.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

TEST(SeqAllocator, HandsOutEachIdOnceUntilNoneIsLeft) {
  SeqAllocator seqs(4, 2);
  EXPECT_EQ(seqs.Allocate(), 4);
  EXPECT_EQ(seqs.Allocate(), 5);
  EXPECT_EQ(seqs.Allocate(), std::nullopt);
  EXPECT_EQ(seqs.n_used(), 2);
  seqs.Free(4);
  EXPECT_EQ(seqs.Allocate(), 4);
}

TEST(SeqAllocatorDeathTest, FreeingTwiceIsABug) {
  SeqAllocator seqs(0, 2);
  seqs.Allocate();
  seqs.Free(0);
  EXPECT_DEATH(seqs.Free(0), "broken invariant");
}

}  // namespace
}  // namespace polykv
