// Streams keep their floor whatever else there is to compute, and what else there is gets done.
#include <algorithm>
#include <numeric>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

constexpr TimeUs kMs = 1'000;

// When a stream's tokens came, from `since` on.
std::vector<TimeUs> TokenTimes(GenerationChannel& channel) {
  std::vector<TimeUs> times;
  while (const auto message = channel.Next(std::chrono::milliseconds(0))) {
    const auto* piece = std::get_if<Piece>(&message->event);
    if (piece != nullptr) times.push_back(piece->timings.t_last);
  }
  return times;
}

// A step takes 10 ms, and 2 ms for each token.
class FloorsEngineTest : public EngineTest {
 protected:
  static EngineConfig BigConfig() {
    EngineConfig config = DefaultConfig();
    config.n_parallel = 8;
    config.max_sessions = 16;
    config.n_ctx_plain = 16'384;
    config.n_ctx_session = 16'384;
    return config;
  }
  static FakeBackendOptions Model() {
    return {.n_ctx = 65'536, .step_us = 10 * kMs, .token_us = 2 * kMs};
  }

  void SetUp() override {
    Build(BigConfig(), Model());
    pool_ = MakePool(std::string(100, 'p'), "pool");
  }
  void SetFloor(double floor) {
    SetAdmission command{.pool = "pool", .policy = AdmissionPolicy{}};
    command.policy->target_tps_per_session = floor;
    engine_->Post(std::move(command));
    engine_->RunOneStep();
  }
  Handle Session(const std::string& id, int32_t n_own = 10, int32_t n_predict = 8'000) {
    return Submit({.prompt = std::string(100, 'p') + id + std::string(n_own, 's'),
                   .n_predict = n_predict,
                   .attach = {.pool = "pool", .session_id = id}});
  }
  // Streams that have decoded for a while.
  std::vector<Handle> Streams(int n) {
    std::vector<Handle> streams;
    for (int i = 0; i < n; ++i) streams.push_back(Session("stream" + std::to_string(i)));
    Run(200);
    for (Handle& stream : streams) TokenTimes(*stream.channel);
    return streams;
  }
  void Run(int n_steps) {
    for (int i = 0; i < n_steps; ++i) engine_->RunOneStep();
    Check();
  }
  // Steps until the answer has begun; the time that it took.
  TimeUs UntilStarted(Handle& handle) {
    const TimeUs begin = clock_.NowUs();
    for (int i = 0; i < 20'000 && Look(handle).text.empty(); ++i) engine_->RunOneStep();
    EXPECT_FALSE(Look(handle).text.empty());
    return clock_.NowUs() - begin;
  }

  struct Gaps {
    TimeUs largest = 0;
    double mean_tps = 0;
  };
  static Gaps GapsOf(Handle& stream) {
    const std::vector<TimeUs> times = TokenTimes(*stream.channel);
    Gaps gaps;
    for (size_t i = 1; i < times.size(); ++i) {
      gaps.largest = std::max(gaps.largest, times[i] - times[i - 1]);
    }
    gaps.mean_tps = static_cast<double>(times.size() - 1) * 1e6 /
                    static_cast<double>(times.back() - times.front());
    return gaps;
  }

  PoolCreated pool_;
};

class FloorTest : public FloorsEngineTest, public ::testing::WithParamInterface<double> {};

TEST_P(FloorTest, HoldsWhileAPoolAndTwoPromptsAreComputed) {
  SetFloor(GetParam());
  std::vector<Handle> streams = Streams(3);
  const TimeUs begin = clock_.NowUs();
  const PoolChannel big = PostPool(std::string(4'096, 'b'));
  std::vector<Handle> prompts = {Session("long", 2'000, 4),
                                 Submit({.prompt = std::string(2'000, 'q'), .n_predict = 4})};
  for (int i = 0; i < 20'000 && !Look(prompts[1]).done(); ++i) engine_->RunOneStep();
  EXPECT_TRUE(Look(prompts[0]).done());
  EXPECT_TRUE(Look(prompts[1]).done());
  for (int i = 0; i < 20'000 && !Take(big); ++i) engine_->RunOneStep();
  const TimeUs alone = 8'096 * 2 * kMs;
  EXPECT_LT(clock_.NowUs() - begin, 2 * alone) << "the streams got more than their floor";
  for (Handle& stream : streams) {
    const Gaps gaps = GapsOf(stream);
    EXPECT_LE(gaps.largest, static_cast<TimeUs>(2e6 / GetParam()));
    EXPECT_GE(gaps.mean_tps, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Floors, FloorTest, ::testing::Values(2.0, 5.0, 10.0, 20.0));

TEST_F(FloorsEngineTest, WithoutAFloorAChunkIsWhatTheFlagSays) {
  std::vector<Handle> streams = Streams(3);
  Handle prompt = Session("long", 2'000, 4);
  UntilStarted(prompt);
  EXPECT_EQ(GapsOf(streams[0]).largest, 10 * kMs + (3 + 256) * 2 * kMs);
}

TEST_F(FloorsEngineTest, AFloorThatCannotBeHeldLeavesPrefillATenthOfTheTime) {
  SetFloor(1'000);
  std::vector<Handle> streams = Streams(3);
  Handle prompt = Session("long", 1'000, 4);
  const TimeUs alone = 1'000 * 2 * kMs;
  const TimeUs took = UntilStarted(prompt);
  EXPECT_GT(took, 8 * alone);
  EXPECT_LT(took, 12 * alone);
}

TEST_F(FloorsEngineTest, AFloorThatIsJustReachedLeavesPrefillATenthOfTheTime) {
  SetFloor(60);  // a step of three streams takes 16 ms
  std::vector<Handle> streams = Streams(3);
  Handle prompt = Session("long", 1'000, 4);
  const TimeUs alone = 1'000 * 2 * kMs;
  EXPECT_LT(UntilStarted(prompt), 12 * alone);
  EXPECT_GT(GapsOf(streams[0]).mean_tps, 50);
}

TEST_F(FloorsEngineTest, ThePromptOfASessionGoesBeforeAShorterOneOutsideOfEveryPolicy) {
  SetFloor(10);
  std::vector<Handle> streams = Streams(2);
  Handle outside = Submit({.prompt = std::string(500, 'q'), .n_predict = 4});
  Handle session = Session("long", 800, 4);
  UntilStarted(session);
  EXPECT_TRUE(Look(outside).text.empty());
  UntilStarted(outside);
}

TEST_F(FloorsEngineTest, EmbeddingsKeepToTheRoomThatFloorsLeave) {
  for (const bool in_parts : {true, false}) {
    EngineConfig config = BigConfig();
    config.max_embeds = 4;
    FakeBackendOptions options = Model();
    options.embeds_in_parts = in_parts;
    Build(config, options);
    MakePool(std::string(100, 'p'), "pool");
    SetFloor(2);
    std::vector<Handle> streams = Streams(2);
    SubmitEmbedding command;
    for (int i = 0; i < 8; ++i) command.prompts.push_back(Tokens(std::string(200, 'e')));
    const auto answer = command.channel;
    engine_->Post(std::move(command));
    Handle prompt = Session("long", 2'000, 4);
    bool answered = false;
    for (int i = 0; i < 2'000 && !answered; ++i) {
      engine_->RunOneStep();
      answered = answer->Next(std::chrono::milliseconds(0)).has_value();
    }
    EXPECT_TRUE(answered);
    UntilStarted(prompt);
    for (Handle& stream : streams) {
      const Gaps gaps = GapsOf(stream);
      EXPECT_LE(gaps.largest, 1'000 * kMs) << in_parts;
      EXPECT_GE(gaps.mean_tps, 1.9) << in_parts;
    }
  }
}

TEST_F(FloorsEngineTest, AnIdleSessionStaysInTheCacheWhileAFloorLeavesNoRoomForItsCopy) {
  EngineConfig config = BigConfig();
  config.host_bytes = 1 << 30;
  config.session_hot_ms = 100;
  Build(config, Model());
  MakePool(std::string(100, 'p'), "pool");
  Handle idle = Session("idle", 4'000, 4);  // its copy takes 8 ms
  Finish(idle);
  SetFloor(70);
  std::vector<Handle> streams = Streams(3);
  Run(100);
  EXPECT_EQ(engine_->Snapshot()->counters.sessions_saved, 0U);
  SetFloor(20);
  Run(100);
  EXPECT_EQ(engine_->Snapshot()->counters.sessions_saved, 1U);
}

TEST_F(FloorsEngineTest, ThrottledStreamsLetTheOthersComeBackOverTheirFloor) {
  for (const bool throttle : {false, true}) {
    EngineConfig config = BigConfig();
    config.throttle = throttle;
    Build(config, Model());
    MakePool(std::string(100, 'p'), "pool");
    SetFloor(45);
    std::vector<Handle> sessions = Streams(2);
    std::vector<Handle> outside;
    for (int i = 0; i < 6; ++i) {
      outside.push_back(Submit({.prompt = "outside" + std::to_string(i), .n_predict = 4'000}));
    }
    Run(400);
    for (Handle& session : sessions) TokenTimes(*session.channel);
    for (Handle& stream : outside) TokenTimes(*stream.channel);
    Run(400);
    const double tps = GapsOf(sessions[0]).mean_tps;
    if (throttle) {
      EXPECT_GE(tps, 44);
      EXPECT_GT(GapsOf(outside[0]).mean_tps, 10);
    } else {
      EXPECT_NEAR(tps, 1000.0 / 26, 1);  // eight streams in each step
    }
  }
}

}  // namespace
}  // namespace polykv
