#include "engine/planner.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr PrefillLimits kIdle{.n_decoding = 0,
                              .n_batch = 2048,
                              .n_ubatch = 512,
                              .chunk = 256,
                              .us_per_token = 1000,
                              .now = 1'000'000};

PrefillLimits While(int32_t n_decoding) {
  PrefillLimits limits = kIdle;
  limits.n_decoding = n_decoding;
  return limits;
}

std::vector<std::pair<size_t, int32_t>> Plan(std::vector<PrefillJob> jobs,
                                             const PrefillLimits& limits) {
  std::vector<std::pair<size_t, int32_t>> plan;
  for (const PrefillShare& share : PlanPrefill(jobs, limits))
    plan.emplace_back(share.job, share.n_tokens);
  return plan;
}

using Pairs = std::vector<std::pair<size_t, int32_t>>;

TEST(PlanPrefill, NothingToDo) { EXPECT_TRUE(Plan({}, kIdle).empty()); }

TEST(PlanPrefill, ALonePromptGoesInPhysicalBatches) {
  EXPECT_EQ(Plan({{.n_left = 5000, .since = kIdle.now}}, kIdle), (Pairs{{0, 512}}));
  EXPECT_EQ(Plan({{.n_left = 100, .since = kIdle.now}}, kIdle), (Pairs{{0, 100}}));
}

TEST(PlanPrefill, NeverGoesBeyondAStop) {
  const TimeUs now = kIdle.now;
  EXPECT_EQ(Plan({{.n_left = 900, .since = now, .n_to_stop = 188}}, kIdle), (Pairs{{0, 188}}));
  EXPECT_EQ(Plan({{.n_left = 900, .since = now, .n_to_stop = 700}}, kIdle), (Pairs{{0, 512}}));
  EXPECT_EQ(Plan({{.n_left = 900, .since = now, .n_to_stop = 8}, {.n_left = 901, .since = now}},
                 While(1)),
            (Pairs{{0, 8}, {1, 248}}));
}

TEST(PlanPrefill, KeepsToTheChunkWhileOthersDecode) {
  EXPECT_EQ(Plan({{.n_left = 5000, .since = kIdle.now}}, While(3)), (Pairs{{0, 256}}));
}

TEST(PlanPrefill, NeverExceedsTheBatch) {
  PrefillLimits limits = While(60);
  limits.n_batch = 64;
  EXPECT_EQ(Plan({{.n_left = 50, .since = limits.now}}, limits), (Pairs{{0, 4}}));
  limits.n_decoding = 64;
  EXPECT_TRUE(Plan({{.n_left = 50, .since = limits.now}}, limits).empty());
}

TEST(PlanPrefill, TheShortestGoesFirstAndTheRestOfTheBudgetToTheNext) {
  const TimeUs now = kIdle.now;
  EXPECT_EQ(Plan({{.n_left = 900, .since = now},
                  {.n_left = 64, .since = now},
                  {.n_left = 70, .since = now}},
                 While(1)),
            (Pairs{{1, 64}, {2, 70}, {0, 122}}));
}

TEST(PlanPrefill, EqualJobsGoInTheOrderOfArrival) {
  EXPECT_EQ(
      Plan({{.n_left = 300, .since = kIdle.now - 10}, {.n_left = 300, .since = kIdle.now - 20}},
           While(1)),
      (Pairs{{1, 256}}));
}

TEST(PlanPrefill, AJobThatHasWaitedThreeTimesItsSoloTimeGoesFirst) {
  const TimeUs solo = 400 * 1000;  // 400 tokens
  const PrefillJob shorter{.n_left = 10, .since = kIdle.now};
  EXPECT_EQ(Plan({{.n_left = 400, .since = kIdle.now - 3 * solo}, shorter}, While(1)),
            (Pairs{{1, 10}, {0, 246}}));
  EXPECT_EQ(Plan({{.n_left = 400, .since = kIdle.now - 3 * solo - 1}, shorter}, While(1)),
            (Pairs{{0, 256}}));
}

}  // namespace
}  // namespace polykv
