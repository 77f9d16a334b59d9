#include "engine/throttle.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr StreamRate kUnder{.slot_id = 0, .tps = 9.9, .floor_tps = 10};
constexpr StreamRate kOver{.slot_id = 1, .tps = 12.6, .floor_tps = 10};
constexpr StreamRate kOutside{.slot_id = 2, .tps = 30};
constexpr TimeUs kLong = 2'000'000;

std::vector<bool> Plan(std::vector<StreamRate> streams, TimeUs under_for = 0, uint64_t step = 0) {
  return PlanThrottle(streams, step, under_for);
}
using Skips = std::vector<bool>;

TEST(PlanThrottle, NobodySkipsWhileAllHaveTheirFloor) {
  StreamRate held = kUnder;
  held.tps = 10;
  EXPECT_EQ(Plan({held, kOver, kOutside}, kLong), (Skips{false, false, false}));
  EXPECT_EQ(Plan({kOver, kOutside}, kLong), (Skips{false, false}));
  EXPECT_TRUE(Plan({}).empty());
}

TEST(PlanThrottle, AStreamThatIsStillWarmingIsNotUnderItsFloor) {
  StreamRate warming = kUnder;
  warming.tps = 0;
  EXPECT_EQ(Plan({warming, kOver, kOutside}, kLong), (Skips{false, false, false}));
}

TEST(PlanThrottle, StreamsOutsideOfEveryPolicyGoFirst) {
  EXPECT_EQ(Plan({kUnder, kOver, kOutside}, kLong - 1), (Skips{false, false, true}));
  EXPECT_EQ(Plan({kUnder, kOver, kOutside}, kLong), (Skips{false, true, true}));
  EXPECT_EQ(Plan({kUnder, kOver}), (Skips{false, true}));
}

TEST(PlanThrottle, ASessionSkipsWhileItIsMoreThanAQuarterOver) {
  StreamRate just = kOver;
  just.tps = 12.5;
  EXPECT_EQ(Plan({kUnder, just}, kLong), (Skips{false, false}));
}

TEST(PlanThrottle, AnOutsideStreamDecodesInOneStepOfFourAndTheyTakeTurns) {
  const StreamRate other{.slot_id = 5, .tps = 30};
  int n_decoded = 0;
  int n_other = 0;
  for (uint64_t step = 100; step < 140; ++step) {
    const Skips skips = Plan({kUnder, kOutside, other}, 0, step);
    EXPECT_TRUE(skips[1] || skips[2]) << "both in one step";
    n_decoded += skips[1] ? 0 : 1;
    n_other += skips[2] ? 0 : 1;
  }
  EXPECT_EQ(n_decoded, 10);
  EXPECT_EQ(n_other, 10);
}

}  // namespace
}  // namespace polykv
