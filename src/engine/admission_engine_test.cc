// The admission gate in the engine: who waits, who is refused, and that nobody waits in vain.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class AdmissionEngineTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineConfig config = DefaultConfig();
    config.n_parallel = 8;
    config.max_sessions = 16;
    Build(config, {.n_ctx = 4096, .step_us = 0, .token_us = 10'000});
    pool_ = MakePool(prefix_);
  }

  // A step takes 10 ms per token: one stream gets 100 tokens per second, n get 100 / n.
  void SetPolicy(AdmissionPolicy policy) {
    policy.mode = AdmissionPolicy::Mode::kEnforced;
    SetAdmission command{.pool = std::to_string(pool_.pool_id), .policy = policy};
    engine_->Post(std::move(command));
    Step();
  }
  // Of prefix_ + "fork ", named "fork".
  void MakeFork() {
    engine_->Post(CreatePool{.parent = std::to_string(pool_.pool_id),
                             .tokens = Tokens("fork "),
                             .append = true,
                             .name = "fork"});
    RunAll();
  }
  Handle Spawn(const std::string& session, bool overcommit = false, int32_t n_predict = 2000) {
    return Submit({.prompt = prefix_ + session,
                   .n_predict = n_predict,
                   .attach = {.pool = std::to_string(pool_.pool_id),
                              .session_id = session,
                              .overcommit = overcommit}});
  }
  Capacity Ask(const std::string& session = "") {
    AskCapacity command{.pool = std::to_string(pool_.pool_id), .session_id = session};
    auto channel = command.channel;
    engine_->Post(std::move(command));
    engine_->RunOneStep();
    return channel->Next(std::chrono::milliseconds(0))->value();
  }
  bool Started(Handle& handle) { return Look(handle).started.has_value(); }

  const std::string prefix_ = "a shared beginning; ";
  PoolCreated pool_;
};

TEST_F(AdmissionEngineTest, AdmitsOneAtATimeUntilTheFloorIsReached) {
  SetPolicy({.target_tps_per_session = 30});
  std::vector<Handle> handles;
  for (int i = 0; i < 6; ++i) handles.push_back(Spawn("agent" + std::to_string(i)));
  Step(20);
  EXPECT_TRUE(Started(handles[0]));
  EXPECT_FALSE(Started(handles[1])) << "the first admission has not settled";
  EXPECT_EQ(Ask().verdict.reason, "measurement settling");
  EXPECT_EQ(Ask().n_queued, 5);
  Step(40);
  EXPECT_TRUE(Started(handles[1]));
  EXPECT_FALSE(Started(handles[2]));
  Step(400);
  int n_started = 0;
  int n_refused = 0;
  for (Handle& handle : handles) {
    n_started += Started(handle) ? 1 : 0;
    n_refused += handle.answer.problem.has_value() ? 1 : 0;
  }
  EXPECT_EQ(n_started, 2) << "100, 50, 33 tokens per second, and one session in reserve";
  EXPECT_EQ(n_refused, 4);
  const Problem& problem = *handles[5].answer.problem;
  EXPECT_EQ(problem.status, 429);
  EXPECT_EQ(problem.type, "pool_saturated");
  EXPECT_GE(problem.retry_after_s.value(), 1);
  EXPECT_LE(problem.retry_after_s.value(), 60);
}

TEST_F(AdmissionEngineTest, ABurstIsAdmittedOneSettleAtATimeAndNeverRefusedForSettling) {
  SetPolicy({.target_tps_per_session = 5});
  std::vector<Handle> handles;
  for (int i = 0; i < 8; ++i) handles.push_back(Spawn("agent" + std::to_string(i)));
  const TimeUs begin = clock_.NowUs();
  int n_before = 0;
  for (int step = 0; step < 1'500 && n_before < 8; ++step) {
    Step();
    int n_started = 0;
    for (Handle& handle : handles) n_started += Started(handle) ? 1 : 0;
    const bool held_at_most = clock_.NowUs() - begin >= 6'000'000;
    EXPECT_TRUE(held_at_most || n_started <= n_before + 1) << "at step " << step;
    n_before = n_started;
  }
  EXPECT_EQ(n_before, 8);
}

TEST_F(AdmissionEngineTest, AnAgentThatIsGoneDoesNotEatTheGuaranteedMinimum) {
  SetPolicy({.target_tps_per_session = 1'000});
  for (const bool ends : {true, false}) {
    Handle agent = Submit(
        {.prompt = prefix_ + "one",
         .n_predict = 10,
         .attach = {
             .pool = std::to_string(pool_.pool_id), .session_id = "one", .session_end = ends}});
    Finish(agent);
    EXPECT_EQ(Ask().verdict.guaranteed, ends);
  }
  clock_.AdvanceUs(30'000'000);
  EXPECT_TRUE(Ask().verdict.guaranteed) << "it has long been silent";
}

TEST_F(AdmissionEngineTest, AServerFullOfIdleSessionsAdmits) {
  SetPolicy({.target_tps_per_session = 1});
  for (int i = 0; i < 4; ++i) {
    Handle agent = Spawn("agent" + std::to_string(i), /*overcommit=*/false, 1'000);
    Finish(agent);
  }
  const Capacity capacity = Ask();
  EXPECT_LT(capacity.server.cells_total - engine_->Snapshot()->kv_cells_used, 100);
  EXPECT_TRUE(capacity.verdict.can_admit) << capacity.verdict.reason;
}

TEST_F(AdmissionEngineTest, AKnownSessionPassesASaturatedGate) {
  SetPolicy({.target_tps_per_session = 90});
  Handle first = Spawn("one", false, 10);
  Finish(first);
  clock_.AdvanceUs(20'000'000);
  Handle busy = Spawn("two", /*overcommit=*/true);
  Step(100);
  ASSERT_TRUE(Started(busy));
  Handle refused = Spawn("three");
  Step(5);
  EXPECT_EQ(Look(refused).problem->status, 429);
  Handle again = Spawn("one");
  Step(5);
  EXPECT_TRUE(Started(again));
  EXPECT_TRUE(Ask("one").verdict.can_admit);
  EXPECT_EQ(Ask("one").verdict.reason, "known session");
}

TEST_F(AdmissionEngineTest, AQueuedRequestStartsWhenAnotherEndsAndNotBefore) {
  SetPolicy({.target_tps_per_session = 60,
             .on_saturation = AdmissionPolicy::OnSaturation::kQueue,
             .max_queue = 1});
  Handle first = Spawn("one", false, 400);
  Step(100);
  Handle second = Spawn("two");
  Step(5);
  Handle third = Spawn("three");
  Step(20);
  EXPECT_FALSE(Started(second));
  EXPECT_EQ(Look(third).problem->status, 429) << "the queue holds one";
  EXPECT_EQ(Ask().n_queued, 1);
  engine_->Post(EndSessions{.session_id = "one"});
  Step(5);
  EXPECT_TRUE(Started(second));
}

TEST_F(AdmissionEngineTest, AQueuedRequestIsToldWhenItHasWaitedTooLong) {
  SetPolicy({.target_tps_per_session = 60,
             .on_saturation = AdmissionPolicy::OnSaturation::kQueue,
             .queue_timeout_ms = 2'000});
  Handle first = Spawn("one");
  Step(100);
  Handle second = Spawn("two");
  Step(100);
  EXPECT_FALSE(Look(second).done());
  Step(110);
  EXPECT_EQ(Look(second).problem->status, 503);
}

TEST_F(AdmissionEngineTest, ACancelledRequestLeavesTheQueue) {
  SetPolicy({.target_tps_per_session = 60, .on_saturation = AdmissionPolicy::OnSaturation::kQueue});
  Handle first = Spawn("one");
  Step(100);
  Handle second = Spawn("two");
  Step(5);
  EXPECT_EQ(Ask().n_queued, 1);
  Cancel(second);
  Step(2);
  EXPECT_EQ(Ask().n_queued, 0);
}

TEST_F(AdmissionEngineTest, AWarnedRequestStarts) {
  SetPolicy({.target_tps_per_session = 60, .on_saturation = AdmissionPolicy::OnSaturation::kWarn});
  Handle first = Spawn("one");
  Step(100);
  Handle second = Spawn("two");
  Step(5);
  ASSERT_TRUE(Started(second));
  EXPECT_EQ(second.answer.started->report.sessions_remaining, 0);
}

TEST_F(AdmissionEngineTest, AForkWithoutAPolicyIsUnderItsAncestors) {
  SetPolicy({.target_tps_per_session = 60});
  MakeFork();
  Handle first = Spawn("one");
  Step(100);
  Handle second =
      Submit({.prompt = prefix_ + "fork x", .n_predict = 50, .attach = {.pool = "fork"}});
  Step(5);
  EXPECT_EQ(Look(second).problem->status, 429);
}

TEST_F(AdmissionEngineTest, AFreshForkWithItsOwnPolicyGetsItsFirstAgent) {
  SetPolicy({.target_tps_per_session = 60});
  MakeFork();
  engine_->Post(SetAdmission{.pool = "fork",
                             .policy = AdmissionPolicy{.target_tps_per_session = 60,
                                                       .mode = AdmissionPolicy::Mode::kEnforced}});
  Handle first = Spawn("one");
  Step(100);
  Handle second =
      Submit({.prompt = prefix_ + "fork x", .n_predict = 500, .attach = {.pool = "fork"}});
  Step(5);
  EXPECT_TRUE(Started(second)) << "guaranteed minimum";
}

TEST_F(AdmissionEngineTest, AHeldRequestIsNotJudgedInEveryStep) {
  SetPolicy({.target_tps_per_session = 60, .on_saturation = AdmissionPolicy::OnSaturation::kQueue});
  Handle first = Spawn("one");
  Step(100);
  Handle second = Spawn("two");
  Step();  // judged and held
  engine_->Post(EndSessions{.session_id = "one"});
  Step();
  EXPECT_FALSE(Started(second));
  clock_.AdvanceUs(20'000);
  Step();
  EXPECT_TRUE(Started(second));
}

TEST_F(AdmissionEngineTest, NoAnswerIsLongerThanTheEnforcedPolicyAllows) {
  AdmissionPolicy policy{
      .target_tps_per_session = 1, .settle_tokens = 1, .max_tokens_per_request = 12};
  SetPolicy(policy);
  for (const int32_t n_predict : {5, 12, 100, -1}) {
    Handle handle = Spawn("one", false, n_predict);
    const Finished finished = *Finish(handle).finished;
    EXPECT_EQ(finished.timings.n_generated, n_predict == 5 ? 5 : 12) << n_predict;
    EXPECT_EQ(finished.stop, StopKind::kLimit);
    EXPECT_FALSE(finished.truncated);
  }
  Handle choices = Submit({.prompt = prefix_,
                           .n_predict = 20,
                           .attach = {.pool = std::to_string(pool_.pool_id)},
                           .n_choices = 2});
  EXPECT_EQ(Finish(choices).finished->timings.n_generated, 12);
  EXPECT_EQ(Finish(choices.choices[0]).finished->timings.n_generated, 12);
  Handle continued =
      Submit({.prompt = prefix_ + "one", .n_predict = 20, .attach = {.session_id = "one"}});
  EXPECT_EQ(Finish(continued).finished->timings.n_generated, 12) << "of a session on the pool";
  Handle plain = Submit({.prompt = prefix_, .n_predict = 20});
  EXPECT_EQ(Finish(plain).finished->timings.n_generated, 20);
  policy.mode = AdmissionPolicy::Mode::kAdvisory;
  engine_->Post(SetAdmission{.pool = std::to_string(pool_.pool_id), .policy = policy});
  Handle advised = Spawn("one", false, 20);
  EXPECT_EQ(Finish(advised).finished->timings.n_generated, 20);
}

TEST_F(AdmissionEngineTest, RequestsOutsideEveryPolicyAreNotGated) {
  SetPolicy({.target_tps_per_session = 90});
  Handle first = Spawn("one");
  Step(100);
  Handle plain = Submit({.prompt = "plain"});
  Step(3);
  EXPECT_TRUE(Started(plain));
}

}  // namespace
}  // namespace polykv
