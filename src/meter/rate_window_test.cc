#include "meter/rate_window.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr TimeUs kMs = 1'000;

TEST(RateWindow, WarmsUntilFourGaps) {
  RateWindow rate;
  for (int i = 0; i < 4; ++i) {
    rate.AddToken(i * 100 * kMs);
    EXPECT_EQ(rate.TokensPerSecond(i * 100 * kMs), 0);
  }
  rate.AddToken(400 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(400 * kMs), 10);
}

TEST(RateWindow, AStallShowsAtOnce) {
  RateWindow rate;
  for (int i = 0; i <= 20; ++i) rate.AddToken(i * 50 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(1000 * kMs), 20);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(1050 * kMs), 20);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(3000 * kMs), 0.5);
}

TEST(RateWindow, SkippedTimeDoesNotCount) {
  RateWindow rate;
  for (int i = 0; i <= 20; ++i) rate.AddToken(i * 50 * kMs);
  rate.Skip(4000 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(5050 * kMs), 20);
  rate.AddToken(5050 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(5050 * kMs), 20);
}

TEST(RateWindow, ForgetsWhatIsOlderThanTwoSeconds) {
  RateWindow rate;
  TimeUs now = 0;
  for (int i = 0; i < 50; ++i) rate.AddToken(now += 10 * kMs);   // 100 tokens per second
  for (int i = 0; i < 21; ++i) rate.AddToken(now += 100 * kMs);  // then 10, for 2.1 s
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(now), 10);
}

TEST(RateWindow, ASlowStreamIsMeasuredOverItsLastFourGaps) {
  RateWindow rate;
  for (int i = 0; i < 10; ++i) rate.AddToken(i * 2000 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(9 * 2000 * kMs), 0.5);
}

TEST(RateWindow, TokensThatComeTogetherAreAsManyTokensInThatTime) {
  RateWindow rate;
  rate.AddToken(0);
  rate.AddTokens(5, 100 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(100 * kMs), 50);
  rate.AddTokens(3, 160 * kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(160 * kMs), 50);
}

TEST(RateWindow, LooksAtTheLast128TokensOfAFastStream) {
  RateWindow rate;
  TimeUs now = 0;
  for (int i = 0; i < 500; ++i) rate.AddToken(now += kMs);
  EXPECT_DOUBLE_EQ(rate.TokensPerSecond(now), 1000);
}

}  // namespace
}  // namespace polykv
