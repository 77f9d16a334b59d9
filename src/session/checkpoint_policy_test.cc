#include "session/checkpoint_policy.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

StretchInput Input(Pos begin, int32_t n_prompt, Pos last_checkpoint = 0) {
  return {.begin = begin,
          .n_prompt = n_prompt,
          .n_batch = 2048,
          .n_ubatch = 512,
          .user_starts = {},
          .limits = {.max_count = 32, .min_step = 1000},
          .last_checkpoint = last_checkpoint};
}

void ExpectStretch(const StretchInput& input, Pos end, bool checkpoint) {
  const Stretch stretch = PlanStretch(input);
  EXPECT_EQ(stretch.begin, input.begin);
  EXPECT_EQ(stretch.end, end);
  EXPECT_EQ(stretch.checkpoint, checkpoint);
}

TEST(PlanStretch, WithoutCheckpointsItIsABatch) {
  StretchInput input = Input(0, 5000);
  input.limits.max_count = 0;
  ExpectStretch(input, 2048, false);
  input.begin = 4096;
  ExpectStretch(input, 5000, false);
}

TEST(PlanStretch, CutsAMicroBatchAndFourTokensBeforeTheEnd) {
  ExpectStretch(Input(0, 3000), 2048, false);
  ExpectStretch(Input(2048, 3000), 3000 - 516, false);
  ExpectStretch(Input(2484, 3000), 3000 - 4, true);
  ExpectStretch(Input(2996, 3000, 2484), 3000, true);
}

TEST(PlanStretch, AShortPromptIsCutOnce) {
  ExpectStretch(Input(0, 100), 96, false);
  ExpectStretch(Input(96, 100), 100, true);
  ExpectStretch(Input(0, 4), 4, false);
}

TEST(PlanStretch, ATailNeverReachesBeyondTheBatch) {
  StretchInput input = Input(0, 3000);
  input.n_batch = input.n_ubatch = 256;  // 4 + 256 do not fit into a batch
  ExpectStretch(input, 256, false);
  input.begin = 2740;
  ExpectStretch(input, 2744, false);
}

TEST(PlanStretch, CutsAtUserMessages) {
  StretchInput input = Input(0, 10'000);
  const std::vector<Pos> starts = {300, 900, 1600};
  input.user_starts = starts;
  ExpectStretch(input, 300, false);
  input.begin = 300;
  ExpectStretch(input, 900, true);  // there is no checkpoint yet
  input.last_checkpoint = 300;
  ExpectStretch(input, 1600, false);  // 900 is too near; the last one is a cut always
  input.begin = 1600;
  ExpectStretch(input, 1600 + 2048, true);
}

std::vector<Checkpoint> At(const std::vector<Pos>& lengths, int64_t task_id = 1) {
  std::vector<Checkpoint> checkpoints;
  for (const Pos n : lengths) {
    checkpoints.push_back({.task_id = task_id,
                           .n_tokens = n,
                           .min_pos = n - 1,
                           .state = std::make_shared<HostBytes>(8)});
  }
  return checkpoints;
}

std::vector<Pos> Lengths(const std::vector<Checkpoint>& checkpoints) {
  std::vector<Pos> lengths;
  for (const Checkpoint& checkpoint : checkpoints) lengths.push_back(checkpoint.n_tokens);
  return lengths;
}

std::vector<Pos> AfterRoomFor(std::vector<Checkpoint> checkpoints, CheckpointLimits limits,
                              Pos n_tokens, int64_t task_id = 2) {
  MakeRoomForCheckpoint(checkpoints, limits, task_id, n_tokens);
  return Lengths(checkpoints);
}

using Positions = std::vector<Pos>;

TEST(MakeRoomForCheckpoint, KeepsAllWhileThereIsRoom) {
  EXPECT_EQ(AfterRoomFor(At({100, 110, 120}), {.max_count = 8, .min_step = 50}, 130),
            (Positions{100, 110, 120}));
}

TEST(MakeRoomForCheckpoint, OneAtTheSameLengthIsReplaced) {
  EXPECT_EQ(AfterRoomFor(At({100, 110, 120}), {.max_count = 8}, 110), (Positions{100, 120}));
}

TEST(MakeRoomForCheckpoint, CloseOnesOfEarlierRequestsGoFirst) {
  const CheckpointLimits limits{.max_count = 4, .min_step = 50};
  EXPECT_EQ(AfterRoomFor(At({100, 110, 120, 200}), limits, 300), (Positions{100, 200}));
  EXPECT_EQ(AfterRoomFor(At({100, 110, 120, 200}, 2), limits, 300), (Positions{110, 120, 200}));
}

TEST(MakeRoomForCheckpoint, ThenTheOldest) {
  EXPECT_EQ(AfterRoomFor(At({100, 200, 300, 400}), {.max_count = 2}, 500), (Positions{400}));
}

TEST(FindResumePoint, PlainAttentionGoesBackAnywhere) {
  const ResumePoint point = FindResumePoint({}, {.n_common = 70, .min_pos = 0});
  EXPECT_EQ(point.n_tokens, 70);
  EXPECT_FALSE(point.checkpoint.has_value());
}

TEST(FindResumePoint, ARecurrentStateGoesOnAtItsEndOnly) {
  EXPECT_EQ(FindResumePoint({}, {.n_common = 70, .min_pos = 69}).n_tokens, 70);
  EXPECT_EQ(FindResumePoint({}, {.n_common = 69, .min_pos = 69}).n_tokens, 0);
  const ResumePoint whole =
      FindResumePoint({}, {.n_common = 70, .has_new_tokens = false, .min_pos = 69});
  EXPECT_EQ(whole.n_tokens, 0) << "one token is computed again, for its logits";
}

TEST(FindResumePoint, TakesTheNewestCheckpointWithinTheCommonPart) {
  const std::vector<Checkpoint> checkpoints = At({10, 40, 90});
  const ResumePoint point = FindResumePoint(checkpoints, {.n_common = 60, .min_pos = 99});
  EXPECT_EQ(point.n_tokens, 40);
  EXPECT_EQ(point.checkpoint, 1U);
  EXPECT_LT(point.valid_until, 89) << "the last one is of other tokens";
  EXPECT_EQ(FindResumePoint(checkpoints, {.n_common = 8, .min_pos = 99}).n_tokens, 0);
}

TEST(FindResumePoint, AWindowMustReachBackFromWhereItGoesOn) {
  const ResumeInput within{.n_common = 60, .min_pos = 49, .n_swa = 10};
  EXPECT_EQ(FindResumePoint({}, within).n_tokens, 60);
  std::vector<Checkpoint> checkpoints = At({55});
  checkpoints[0].min_pos = 45;
  const ResumeInput beyond{.n_common = 60, .min_pos = 50, .n_swa = 10};
  EXPECT_EQ(FindResumePoint({}, beyond).n_tokens, 0);
  EXPECT_EQ(FindResumePoint(checkpoints, beyond).n_tokens, 54);
  checkpoints[0].min_pos = 50;
  EXPECT_EQ(FindResumePoint(checkpoints, beyond).n_tokens, 0);
}

}  // namespace
}  // namespace polykv
