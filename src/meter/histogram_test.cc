#include "meter/histogram.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

TEST(HistogramTest, CountsInTheBucketWhoseBoundIsNotExceeded) {
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(1'000);
  histogram.Add(1'001);
  histogram.Add(99'000'000);
  histogram.Add(100'000'001, 2);
  const auto up_to = histogram.UpTo();
  EXPECT_EQ(up_to[0], 2) << "at most 1 ms";
  EXPECT_EQ(up_to[1], 3);
  EXPECT_EQ(up_to[14], 3) << "at most 50 s";
  EXPECT_EQ(up_to[15], 4);
  EXPECT_EQ(up_to[16], 6) << "all";
  EXPECT_EQ(histogram.sum_us(), 0 + 1'000 + 1'001 + 99'000'000 + 2 * 100'000'001LL);
}

}  // namespace
}  // namespace polykv
