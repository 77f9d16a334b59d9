#include "meter/throughput.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr TimeUs kSecond = 1'000'000;

TEST(ThroughputTest, AddsUpAllStreams) {
  Throughput throughput;
  EXPECT_EQ(throughput.TokensPerSecond(0), 0);
  TimeUs now = 5 * kSecond;
  for (int i = 0; i < 500; ++i) {
    now += 20'000;
    for (int stream = 0; stream < 4; ++stream) throughput.AddTokens(1, now);
  }
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now), 200);
}

TEST(ThroughputTest, IsRightFromTheSecondTokenOn) {
  Throughput throughput;
  throughput.AddTokens(0, kSecond);
  EXPECT_EQ(throughput.TokensPerSecond(kSecond), 0);
  throughput.AddTokens(1, kSecond + 10'000);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(kSecond + 10'000), 100);
}

TEST(ThroughputTest, SlowStreamsAreMeasuredToo) {
  Throughput throughput;
  TimeUs now = kSecond;
  for (int i = 0; i < 6; ++i) throughput.AddTokens(2, now += 2 * kSecond);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now), 1);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now + 2 * kSecond), 1);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now + 4 * kSecond), 0.5);
  Throughput slower;
  for (int i = 0; i < 3; ++i) slower.AddTokens(i == 0 ? 0 : 1, now += 20 * kSecond);
  EXPECT_DOUBLE_EQ(slower.TokensPerSecond(now), 0.05);
}

TEST(ThroughputTest, AStallShowsAtOnceAndSilenceIsNothing) {
  Throughput throughput;
  TimeUs now = kSecond;
  for (int i = 0; i < 300; ++i) throughput.AddTokens(3, now += 10'000);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now + 10'000), 300);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now + kSecond), 3);
  EXPECT_EQ(throughput.TokensPerSecond(now + 2 * kSecond + 1), 0);
  now += 60 * kSecond;
  throughput.AddTokens(0, now);
  EXPECT_EQ(throughput.TokensPerSecond(now), 0);
  throughput.AddTokens(1, now + 50'000);
  EXPECT_DOUBLE_EQ(throughput.TokensPerSecond(now + 50'000), 20) << "the silence is no gap";
}

}  // namespace
}  // namespace polykv
