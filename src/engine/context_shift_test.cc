#include "engine/context_shift.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

TEST(PlanShiftTest, HalfOfWhatIsNotKeptIsDropped) {
  const ShiftRange range = PlanShift(255, 256, 10, 0);
  EXPECT_EQ(range.p0, 10);
  EXPECT_EQ(range.p1, 10 + 122);
}

TEST(PlanShiftTest, AtMostAllButOneOfTheOthersAreDropped) {
  EXPECT_EQ(PlanShift(255, 256, 10, 30).p1, 40);
  EXPECT_EQ(PlanShift(255, 256, 10, 1'000).p1, 254);
}

TEST(PlanShiftTest, FourTokensAreNeverKept) {
  const ShiftRange range = PlanShift(255, 256, 1'000, 0);
  EXPECT_EQ(range.p0, 252);
  EXPECT_EQ(range.p1, 253);
}

}  // namespace
}  // namespace polykv
