#include "base/watchdog.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr TimeUs kBound = 10'000'000;
constexpr bool kWork = true;
constexpr bool kNoWork = false;

TEST(WatchdogTest, BarksAtWorkWithoutProgressAfterTheBound) {
  Watchdog dog(kBound);
  dog.Look(5, kWork, 50'000'000);
  dog.Look(5, kWork, 50'000'000 + kBound - 1);
  EXPECT_FALSE(dog.stalled());
  dog.Look(5, kWork, 50'000'000 + kBound);
  EXPECT_TRUE(dog.stalled());
}

TEST(WatchdogTest, IsQuietAsSoonAsSomethingGetsDone) {
  Watchdog dog(kBound);
  dog.Look(5, kWork, 0);
  dog.Look(5, kWork, kBound);
  EXPECT_TRUE(dog.stalled());
  dog.Look(6, kWork, kBound + 1);
  EXPECT_FALSE(dog.stalled());
  dog.Look(6, kWork, 2 * kBound);
  EXPECT_FALSE(dog.stalled());
  dog.Look(6, kWork, 2 * kBound + 1);
  EXPECT_TRUE(dog.stalled());
}

TEST(WatchdogTest, ASlowStepThatGoesOnIsNoStall) {
  Watchdog dog(kBound);
  for (uint64_t node = 0; node < 100; ++node) {
    dog.Look(node, kWork, static_cast<TimeUs>(node) * (kBound - 1));
    EXPECT_FALSE(dog.stalled());
  }
}

TEST(WatchdogTest, AnIdleTimeDoesNotCount) {
  Watchdog dog(kBound);
  dog.Look(5, kWork, 0);
  dog.Look(5, kNoWork, kBound / 2);
  dog.Look(5, kNoWork, 100 * kBound);
  EXPECT_FALSE(dog.stalled());
  dog.Look(5, kWork, 101 * kBound);
  EXPECT_FALSE(dog.stalled()) << "the work has just come";
  dog.Look(5, kWork, 102 * kBound);
  EXPECT_TRUE(dog.stalled());
}

TEST(WatchdogTest, CanBeTurnedOff) {
  Watchdog dog(0);
  dog.Look(5, kWork, 0);
  dog.Look(5, kWork, 100 * kBound);
  EXPECT_FALSE(dog.stalled());
}

}  // namespace
}  // namespace polykv
