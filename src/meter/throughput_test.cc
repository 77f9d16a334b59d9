#include "meter/throughput.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

TEST(ThroughputTest, AddsUpAllStreams) {
  Throughput throughput;
  EXPECT_EQ(throughput.TokensPerSecond(0), 0);
  TimeUs now = 5'000'000;
  for (int i = 0; i < 500; ++i) {
    now += 20'000;
    throughput.AddTokens(4, now);  // four streams of 50 tokens per second
  }
  EXPECT_NEAR(throughput.TokensPerSecond(now), 200, 4);
}

TEST(ThroughputTest, IsRightSoonAfterTheStart) {
  Throughput throughput;
  TimeUs now = 1'000'000;
  for (int i = 0; i < 50; ++i) throughput.AddTokens(1, now += 10'000);
  EXPECT_NEAR(throughput.TokensPerSecond(now), 100, 3);
}

TEST(ThroughputTest, FallsToNothingInTwoSeconds) {
  Throughput throughput;
  TimeUs now = 1'000'000;
  for (int i = 0; i < 300; ++i) throughput.AddTokens(1, now += 10'000);
  EXPECT_NEAR(throughput.TokensPerSecond(now + 1'000'000), 50, 6);
  EXPECT_EQ(throughput.TokensPerSecond(now + 2'100'000), 0);
  throughput.AddTokens(1, now + 60'000'000);
  EXPECT_LE(throughput.TokensPerSecond(now + 60'000'000), 10);
}

}  // namespace
}  // namespace polykv
