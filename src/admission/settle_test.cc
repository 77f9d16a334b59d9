#include "admission/settle.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr TimeUs kSecond = 1'000'000;

class SettleTest : public ::testing::Test {
 protected:
  Forecast Look(TimeUs now) const { return tracker_.Look(policy_, now); }
  void Admit(SettleTracker::Key key, double mean, TimeUs now) {
    tracker_.Admit(key, {mean, 1}, now);
  }
  void Advance(double mean, TimeUs now, double n_running = 2) {
    tracker_.Advance(policy_, {mean, n_running}, now);
  }

  AdmissionPolicy policy_ = {.target_tps_per_session = 10};
  SettleTracker tracker_;
};

TEST_F(SettleTest, SettlesAfterItsTokens) {
  Admit(1, 20, 0);
  tracker_.AddTokens(1, 47, kSecond);
  Advance(15, kSecond);
  EXPECT_EQ(Look(kSecond).n_unsettled, 1);
  EXPECT_EQ(Look(kSecond).settle_remaining_us, 5 * kSecond);
  tracker_.AddTokens(1, 1, 2 * kSecond);
  Advance(16, 2 * kSecond);
  const Forecast forecast = Look(2 * kSecond);
  EXPECT_EQ(forecast.n_unsettled, 0);
  EXPECT_DOUBLE_EQ(*forecast.drop_ewma, 4);
  EXPECT_DOUBLE_EQ(forecast.settled_mean, 16);
  EXPECT_EQ(forecast.settled_at, 2 * kSecond);
}

TEST_F(SettleTest, TheClockStartsAtTheFirstToken) {
  Admit(1, 20, 0);
  Advance(20, 4 * kSecond);
  EXPECT_EQ(Look(4 * kSecond).settle_remaining_us, 6 * kSecond) << "still prefilling";
  tracker_.AddTokens(1, 1, 4 * kSecond);
  Advance(20, 9 * kSecond - 1);
  EXPECT_EQ(Look(9 * kSecond - 1).n_unsettled, 1);
  Advance(20, 9 * kSecond);
  EXPECT_EQ(Look(9 * kSecond).n_unsettled, 0);
}

TEST_F(SettleTest, APrefillThatNeverEndsDoesNotHoldForEver) {
  Admit(1, 20, 0);
  Advance(20, 10 * kSecond - 1);
  EXPECT_EQ(Look(10 * kSecond - 1).n_unsettled, 1);
  Advance(20, 10 * kSecond);
  EXPECT_EQ(Look(10 * kSecond).n_unsettled, 0);
  EXPECT_FALSE(Look(10 * kSecond).drop_ewma.has_value()) << "it showed nothing";
}

TEST_F(SettleTest, ASessionThatEndsEarlyIsNoSample) {
  Admit(1, 20, 0);
  tracker_.AddTokens(1, 23, kSecond);
  tracker_.End(1);
  Advance(5, kSecond);
  EXPECT_EQ(Look(kSecond).n_unsettled, 0);
  EXPECT_FALSE(Look(kSecond).drop_ewma.has_value());
  Admit(2, 20, kSecond);
  tracker_.AddTokens(2, 24, 2 * kSecond);
  tracker_.End(2);
  Advance(15, 2 * kSecond);
  EXPECT_DOUBLE_EQ(*Look(2 * kSecond).drop_ewma, 5);
}

TEST_F(SettleTest, NewDropsWeighThreeTenths) {
  for (const auto& [key, mean] : {std::pair{1, 10.0}, std::pair{2, 30.0}, std::pair{3, 25.0}}) {
    Admit(key, 20, 0);
    tracker_.AddTokens(key, 48, 1);
    Advance(mean, 1);
  }
  EXPECT_DOUBLE_EQ(*Look(1).drop_ewma, 7 + 0.3 * (5 - 7)) << "a rise counts as no drop";
}

TEST_F(SettleTest, TheFirstSessionHasNobodyToSlowDown) {
  Admit(1, 0, 0);
  tracker_.AddTokens(1, 48, 1);
  Advance(30, 1);
  EXPECT_FALSE(Look(1).drop_ewma.has_value());
  EXPECT_DOUBLE_EQ(Look(1).settled_mean, 30);
}

TEST_F(SettleTest, AnAdmissionShowsWhatOneMoreSessionAddsToTheTokenGap) {
  const auto settle = [this](SettleTracker::Key key, double mean, double n_running) {
    Admit(key, 20, 0);
    tracker_.AddTokens(key, 48, 1);
    Advance(mean, 1, n_running);
    return *Look(1).gap_per_session;
  };
  EXPECT_DOUBLE_EQ(settle(1, 10, 2), 0.05);
  const double second = 0.05 + 0.5 * (0.0125 - 0.05);
  EXPECT_DOUBLE_EQ(settle(2, 8, 4), second) << "two that came share it";
  EXPECT_DOUBLE_EQ(settle(3, 5, 3), second) << "it says nothing when there are fewer than before";
}

TEST_F(SettleTest, AnAdmissionThatShowsNothingLeavesTheLevelAsItWas) {
  Advance(30, kSecond);
  Admit(1, 30, kSecond);
  tracker_.AddTokens(1, 5, 2 * kSecond);
  tracker_.End(1);
  Advance(90, 2 * kSecond);
  EXPECT_DOUBLE_EQ(Look(2 * kSecond).settled_mean, 30);
}

TEST_F(SettleTest, ALevelBeginsWithTheFirstTokenOfTheNewest) {
  EXPECT_EQ(tracker_.level_since(), 0);
  Admit(1, 20, 5);
  tracker_.AddTokens(1, 1, 7);
  tracker_.AddTokens(1, 1, 8);
  EXPECT_EQ(tracker_.level_since(), 7);
}

TEST_F(SettleTest, TheSettledMeanFollowsInThreeSeconds) {
  Advance(30, 4 * kSecond);
  Advance(24, 5 * kSecond);
  EXPECT_DOUBLE_EQ(Look(5 * kSecond).settled_mean, 28);
  Admit(1, 10, 5 * kSecond);
  tracker_.AddTokens(1, 48, 6 * kSecond);
  Advance(20, 6 * kSecond);
  EXPECT_DOUBLE_EQ(Look(6 * kSecond).settled_mean, 20) << "a new level begins";
  EXPECT_DOUBLE_EQ(*Look(6 * kSecond).drop_ewma, 8) << "against the smoothed mean before";
}

TEST_F(SettleTest, TheSettledMeanStaysWhileSomethingSettlesOrNobodyDecodes) {
  Advance(30, kSecond);
  Admit(1, 30, kSecond);
  Advance(25, 2 * kSecond);
  EXPECT_DOUBLE_EQ(Look(2 * kSecond).settled_mean, 30);
  tracker_.End(1);
  Advance(0, 3 * kSecond);
  EXPECT_DOUBLE_EQ(Look(3 * kSecond).settled_mean, 30);
  EXPECT_EQ(Look(3 * kSecond).settled_at, kSecond);
}

}  // namespace
}  // namespace polykv
