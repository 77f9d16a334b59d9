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

constexpr TimeUs kMs = 1'000;

// A step of one stream: 10 ms, 5 ms more with a prompt, and 1 ms for each of its tokens.
StepRoom Room(TimeUs now, TimeUs full, TimeUs owed = 0) {
  StepRoom room{.now = now, .full = full, .owed = owed};
  room.cost = {.step_us = 9'000,
               .decode_us = 1'000,
               .prompt_us = 5'000,
               .prefill_us = 1'000,
               .cell_us = 0,
               .wide_cell_us = 0};
  room.decode = {.n_decode = 1};
  return room;
}

int32_t Chunk(const StepRoom& room, int32_t n_left = 5'000) {
  PrefillLimits limits = While(1);
  limits.room = room;
  const auto plan = PlanPrefill({{{.n_left = n_left, .since = limits.now}}}, limits);
  return plan.empty() ? 0 : plan.front().n_tokens;
}

TEST(PlanPrefillBesideFloors, AChunkIsTheLargestMultipleOf16ThatFits) {
  EXPECT_EQ(Chunk(Room(79 * kMs, 79 * kMs)), 64);
  EXPECT_EQ(Chunk(Room(79 * kMs - 1, 79 * kMs - 1)), 48);
  EXPECT_EQ(Chunk(Room(31 * kMs, 31 * kMs)), 16);
  EXPECT_EQ(Chunk(Room(31 * kMs - 1, 31 * kMs - 1)), 0);
  StepRoom uncertain = Room(79 * kMs, 79 * kMs);
  uncertain.margin = 1.5;
  EXPECT_EQ(Chunk(uncertain), 32);  // 1.5 * 47 ms
}

TEST(PlanPrefillBesideFloors, NeverMoreThanWithoutThem) {
  EXPECT_EQ(Chunk(Room(10'000 * kMs, 10'000 * kMs)), 256);
  EXPECT_EQ(Chunk(Room(10'000 * kMs, 10'000 * kMs), 70), 70);
}

TEST(PlanPrefillBesideFloors, StepsWithoutAPromptFollowUntilMostOfALargeChunkFits) {
  const TimeUs full = 143 * kMs;  // 128 tokens
  EXPECT_EQ(Chunk(Room(full, full)), 128);
  EXPECT_EQ(Chunk(Room(111 * kMs, full)), 96);
  EXPECT_EQ(Chunk(Room(111 * kMs - 1, full)), 0);
  EXPECT_EQ(Chunk(Room(47 * kMs, full), 20), 20);  // all there is
}

TEST(PlanPrefillBesideFloors, PrefillGetsWhatItIsOwed) {
  const TimeUs full = 79 * kMs;  // 64 tokens, which add 69 ms
  EXPECT_EQ(Chunk(Room(0, full, 69 * kMs)), 64);
  EXPECT_EQ(Chunk(Room(0, full, 69 * kMs - 1)), 0);
  EXPECT_EQ(Chunk(Room(0, 0, 21 * kMs)), 16);  // a floor that cannot be held at all
  EXPECT_EQ(Chunk(Room(0, 0, 21 * kMs - 1)), 0);
}

TEST(PlanPrefillBesideFloors, AStepIsNeverEmpty) {
  StepRoom room = Room(0, 0);
  room.may_wait = false;
  EXPECT_EQ(Chunk(room), 16);
}

TEST(PlanPrefillBesideFloors, ALargerChunkIsTakenWhereItTakesLessTime) {
  StepRoom room = Room(200 * kMs, 200 * kMs);
  room.cost.cell_us = 5;  // up to 63 tokens
  room.cost.wide_cell_us = 1;
  PrefillLimits limits = While(1);
  limits.room = room;
  const PrefillJob job{.n_left = 5'000, .since = limits.now, .begin = 1'500};
  EXPECT_EQ(Plan({job}, limits), (Pairs{{0, 64}}));  // 48 would take 426 ms
}

TEST(PlanPrefillBesideFloors, CellsBeforeAPromptCount) {
  StepRoom room = Room(200 * kMs, 200 * kMs);
  room.cost.wide_cell_us = 1;
  PrefillLimits limits = While(1);
  limits.room = room;
  EXPECT_EQ(Plan({{.n_left = 5'000, .since = limits.now}}, limits), (Pairs{{0, 160}}));
  EXPECT_EQ(Plan({{.n_left = 5'000, .since = limits.now, .begin = 1'000}}, limits),
            (Pairs{{0, 80}}));
}

TEST(PlanPrefill, JobsOutsideOfEveryPolicyComeLast) {
  const TimeUs now = kIdle.now;
  const TimeUs solo = 100 * 1000;
  EXPECT_EQ(Plan({{.n_left = 100, .since = now - 9 * solo, .outside = true},
                  {.n_left = 900, .since = now}},
                 While(1)),
            (Pairs{{1, 256}}));
  PrefillLimits later = While(1);
  later.now = now + 30 * solo;
  EXPECT_EQ(
      Plan({{.n_left = 100, .since = now, .outside = true}, {.n_left = 900, .since = later.now}},
           later),
      (Pairs{{1, 256}}));
  ++later.now;
  EXPECT_EQ(
      Plan({{.n_left = 100, .since = now, .outside = true}, {.n_left = 900, .since = later.now}},
           later),
      (Pairs{{0, 100}, {1, 156}}));
}

TEST(PrefillDuesTest, ATenthOfTheTimeIsOwed) {
  PrefillDues dues;
  EXPECT_EQ(dues.owed(), 0);
  dues.Add(500 * kMs, 0);
  EXPECT_EQ(dues.owed(), 50 * kMs);
  dues.Add(100 * kMs, 40 * kMs);
  EXPECT_EQ(dues.owed(), 20 * kMs);
  dues.Add(100 * kMs, 100 * kMs);  // more than that is not held against it later
  EXPECT_EQ(dues.owed(), 0);
  dues.Add(500 * kMs, 0);
  dues.Reset();
  EXPECT_EQ(dues.owed(), 0);
}

}  // namespace
}  // namespace polykv
