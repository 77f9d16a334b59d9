// Checkpoints, on a model with a state that only goes forward.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class CheckpointTest : public EngineTest {
 protected:
  void SetUp() override { BuildRecurrent({.max_count = 4, .min_step = 0}); }
  void BuildRecurrent(CheckpointLimits limits) {
    EngineConfig config = DefaultConfig();
    config.checkpoints = limits;
    Build(config, {.n_ctx = 1024, .n_ubatch = 16, .recurrent = true});
  }
  int32_t CachedOf(const std::string& prompt, const SessionId& session = "") {
    Handle handle = Submit({.prompt = prompt, .attach = {.session_id = session}});
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, Alone(prompt));
    return answer.finished ? answer.finished->timings.n_prompt_cached : -1;
  }
};

const std::string kTurn(40, 'x');

TEST_F(CheckpointTest, TheSamePromptGoesOnFourTokensBeforeItsEnd) {
  EXPECT_EQ(CachedOf(kTurn), 0);
  EXPECT_EQ(CachedOf(kTurn), 36);
  EXPECT_EQ(CachedOf(kTurn), 36);
}

TEST_F(CheckpointTest, WithoutCheckpointsItIsComputedAgain) {
  BuildRecurrent({.max_count = 0});
  EXPECT_EQ(CachedOf(kTurn), 0);
  EXPECT_EQ(CachedOf(kTurn), 0);
}

TEST_F(CheckpointTest, AContinuationNeedsNone) {
  const std::string first = Alone(kTurn);
  CachedOf(kTurn);
  EXPECT_EQ(CachedOf(kTurn + first + "and on"), 40 + 15);
}

TEST_F(CheckpointTest, AnEditGoesOnFromTheCheckpointBeforeIt) {
  CachedOf(kTurn);
  EXPECT_EQ(CachedOf(std::string(38, 'x') + "other words"), 36);
  EXPECT_EQ(CachedOf(std::string(20, 'x') + "other words"), 20)
      << "4 + a micro-batch before the end";
  EXPECT_EQ(CachedOf("x, but from here on all is new"), 0);
}

TEST_F(CheckpointTest, ASessionProfitsAsWell) {
  EXPECT_EQ(CachedOf(kTurn, "s"), 0);
  EXPECT_EQ(CachedOf(kTurn, "s"), 36);
}

TEST_F(CheckpointTest, TheyTravelThroughThePromptCache) {
  EngineConfig config = DefaultConfig();
  config.checkpoints = {.max_count = 4};
  config.host_bytes = -1;
  config.save_idle_slots = config.clear_idle_slots = true;
  Build(config, {.n_ctx = 1024, .n_ubatch = 16, .recurrent = true});
  CachedOf(kTurn);
  CachedOf("something else altogether");
  EXPECT_EQ(CachedOf(kTurn), 36);
}

}  // namespace
}  // namespace polykv
