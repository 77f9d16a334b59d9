#include "admission/settle.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr TimeUs kSecond = 1'000'000;

class SettleTest : public ::testing::Test {
 protected:
  Forecast Look(TimeUs now) const { return tracker_.Look(policy_, now); }
  void Advance(double mean, TimeUs now) { tracker_.Advance(policy_, mean, now); }

  AdmissionPolicy policy_ = {.target_tps_per_session = 10};
  SettleTracker tracker_;
};

TEST_F(SettleTest, SettlesAfterItsTokens) {
  tracker_.Admit(1, 20, 0);
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
  tracker_.Admit(1, 20, 0);
  Advance(20, 4 * kSecond);
  EXPECT_EQ(Look(4 * kSecond).settle_remaining_us, 6 * kSecond) << "still prefilling";
  tracker_.AddTokens(1, 1, 4 * kSecond);
  Advance(20, 9 * kSecond - 1);
  EXPECT_EQ(Look(9 * kSecond - 1).n_unsettled, 1);
  Advance(20, 9 * kSecond);
  EXPECT_EQ(Look(9 * kSecond).n_unsettled, 0);
}

TEST_F(SettleTest, APrefillThatNeverEndsDoesNotHoldForEver) {
  tracker_.Admit(1, 20, 0);
  Advance(20, 10 * kSecond - 1);
  EXPECT_EQ(Look(10 * kSecond - 1).n_unsettled, 1);
  Advance(20, 10 * kSecond);
  EXPECT_EQ(Look(10 * kSecond).n_unsettled, 0);
  EXPECT_FALSE(Look(10 * kSecond).drop_ewma.has_value()) << "it showed nothing";
}

TEST_F(SettleTest, ASessionThatEndsEarlyIsNoSample) {
  tracker_.Admit(1, 20, 0);
  tracker_.AddTokens(1, 23, kSecond);
  tracker_.End(1);
  Advance(5, kSecond);
  EXPECT_EQ(Look(kSecond).n_unsettled, 0);
  EXPECT_FALSE(Look(kSecond).drop_ewma.has_value());
  tracker_.Admit(2, 20, kSecond);
  tracker_.AddTokens(2, 24, 2 * kSecond);
  tracker_.End(2);
  Advance(15, 2 * kSecond);
  EXPECT_DOUBLE_EQ(*Look(2 * kSecond).drop_ewma, 5);
}

TEST_F(SettleTest, NewDropsWeighThreeTenths) {
  for (const auto& [key, mean] : {std::pair{1, 10.0}, std::pair{2, 30.0}, std::pair{3, 25.0}}) {
    tracker_.Admit(key, 20, 0);
    tracker_.AddTokens(key, 48, 1);
    Advance(mean, 1);
  }
  EXPECT_DOUBLE_EQ(*Look(1).drop_ewma, 10 * 0.7 * 0.7) << "a rise counts as no drop";
}

TEST_F(SettleTest, TheFirstSessionHasNobodyToSlowDown) {
  tracker_.Admit(1, 0, 0);
  tracker_.AddTokens(1, 48, 1);
  Advance(30, 1);
  EXPECT_FALSE(Look(1).drop_ewma.has_value());
  EXPECT_DOUBLE_EQ(Look(1).settled_mean, 30);
}

TEST_F(SettleTest, TheSettledMeanStaysWhileSomethingSettlesOrNobodyDecodes) {
  Advance(30, kSecond);
  tracker_.Admit(1, 30, kSecond);
  Advance(25, 2 * kSecond);
  EXPECT_DOUBLE_EQ(Look(2 * kSecond).settled_mean, 30);
  tracker_.End(1);
  Advance(0, 3 * kSecond);
  EXPECT_DOUBLE_EQ(Look(3 * kSecond).settled_mean, 30);
  EXPECT_EQ(Look(3 * kSecond).settled_at, kSecond);
}

}  // namespace
}  // namespace polykv
