#include "meter/pace.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr double kFloor = 10;
constexpr TimeUs kMs = 1'000;

TEST(Pace, AStreamThatIsNotAheadHasOnePeriod) {
  EXPECT_EQ(Pace().MaxGap(kFloor), 100 * kMs);
  EXPECT_EQ(Pace::LongestGap(kFloor), 200 * kMs);
}

TEST(Pace, WhatATokenComesEarlierTheNextMayTakeLonger) {
  Pace pace;
  pace.AddTokens(1, 30 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), 170 * kMs);
  pace.AddTokens(1, 170 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), 100 * kMs);
}

TEST(Pace, NoGapMayBeLongerThanTwoPeriods) {
  Pace pace;
  for (int i = 0; i < 50; ++i) pace.AddTokens(1, 10 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), Pace::LongestGap(kFloor));
}

TEST(Pace, ALateTokenIsMadeUpFor) {
  Pace pace;
  pace.AddTokens(1, 180 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), 20 * kMs);
  pace.AddTokens(1, 150 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), -30 * kMs);
  pace.AddTokens(1, 10 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), 60 * kMs);
}

TEST(Pace, AStallIsMadeUpForToTheExtentThatTheRateWindowRemembers) {
  Pace pace;
  pace.AddTokens(1, 60'000 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), -1'900 * kMs);
}

TEST(Pace, TokensThatComeTogetherCountEach) {
  Pace pace;
  pace.AddTokens(2, 150 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), 150 * kMs);
}

TEST(Pace, SkippedTimeDoesNotCount) {
  Pace pace;
  pace.Skip(5'000 * kMs);
  pace.AddTokens(1, 5'080 * kMs, kFloor);
  EXPECT_EQ(pace.MaxGap(kFloor), 120 * kMs);
}

TEST(Pace, ALowerFloorThanBeforeAllowsNoMoreThanTwoOfItsPeriods) {
  Pace pace;
  pace.AddTokens(1, 0, 2);
  EXPECT_EQ(pace.MaxGap(kFloor), 200 * kMs);
}

}  // namespace
}  // namespace polykv
