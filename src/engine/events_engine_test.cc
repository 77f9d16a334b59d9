// What the engine tells the event log.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class EventsEngineTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineConfig config = DefaultConfig();
    config.event_log = &log_;
    Build(config, {.n_ctx = 1024, .step_us = 0, .token_us = 10'000});
  }
  void TearDown() override {
    EngineTest::TearDown();
    engine_.reset();  // it tells the log of its end
  }

  // What has happened since the last call, as words.
  std::string News() {
    std::string news;
    for (const auto& event : Take()) {
      if (!news.empty()) news += ' ';
      news += EventName(event->kind);
    }
    return news;
  }
  std::vector<std::shared_ptr<const Event>> Take() {
    const auto part = log_.After(seen_, std::chrono::milliseconds(0));
    EXPECT_FALSE(part.gap);
    seen_ = log_.newest();
    return part.events;
  }
  static Fact FactOf(const Event& event, const std::string& name) {
    for (const auto& [key, fact] : event.facts) {
      if (key == name) return fact;
    }
    ADD_FAILURE() << EventName(event.kind) << " has no " << name;
    return {};
  }
  // The decisions that the admission gate has told since the last call.
  std::vector<std::string> Decisions() {
    std::vector<std::string> decisions;
    for (const auto& event : Take()) {
      if (event->kind != EventKind::kAdmission) continue;
      decisions.push_back(std::get<std::string>(FactOf(*event, "decision")));
    }
    return decisions;
  }
  void SetPolicy(const PoolCreated& pool, AdmissionPolicy policy) {
    policy.mode = AdmissionPolicy::Mode::kEnforced;
    engine_->Post(SetAdmission{.pool = std::to_string(pool.pool_id), .policy = policy});
    Step();
  }
  Handle Spawn(const PoolCreated& pool, const std::string& session, bool overcommit = false) {
    return Submit({.prompt = prefix_ + session,
                   .n_predict = 600,
                   .attach = {.pool = std::to_string(pool.pool_id),
                              .session_id = session,
                              .overcommit = overcommit}});
  }

  const std::string prefix_ = "a shared beginning; ";
  EventLog log_;
  uint64_t seen_ = 0;
};

using Decided = std::vector<std::string>;

TEST_F(EventsEngineTest, TellsThePathOfAPool) {
  const PoolCreated pool = MakePool("some prefix", "main");
  const std::string id = std::to_string(pool.pool_id);
  EXPECT_EQ(News(), "pool_created pool_sealed");
  engine_->Post(CreatePool{.parent = id, .tokens = Tokens("fork"), .append = true, .name = "fork"});
  RunAll();
  EXPECT_EQ(News(), "pool_forked pool_sealed");
  Change(ChangePool::Action::kPin, "fork");
  Change(ChangePool::Action::kPin, "fork");
  Change(ChangePool::Action::kUnpin, "fork");
  EXPECT_EQ(News(), "pool_pinned pool_unpinned");
  Change(ChangePool::Action::kEvict, "fork");
  EXPECT_EQ(News(), "pool_evicted");
  Handle handle = Submit({.prompt = "some prefixfork you", .attach = {.pool = "fork"}});
  Finish(handle);
  EXPECT_EQ(News(), "session_begun pool_rebuilt session_attached session_finished session_ended");
  Change(ChangePool::Action::kRelease, "fork", /*force=*/true);
  EXPECT_EQ(News(), "pool_released");
}

TEST_F(EventsEngineTest, TellsWhyAPoolFailed) {
  const PoolChannel channel = PostPool("some prefix");
  channel->Cancel();
  Step();
  const auto events = Take();
  ASSERT_EQ(events.back()->kind, EventKind::kPoolFailed);
  EXPECT_EQ(FactOf(*events.back(), "error"), Fact("cancelled"));
}

TEST_F(EventsEngineTest, TellsTheTurnsOfASession) {
  const AttachSpec attach{.session_id = "agent"};
  Handle first = Submit({.prompt = "hello", .n_predict = 8, .attach = attach});
  Finish(first);
  auto events = Take();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]->kind, EventKind::kSessionBegun);
  EXPECT_EQ(events[1]->kind, EventKind::kSessionAttached);
  EXPECT_EQ(events[2]->kind, EventKind::kSessionFinished);
  EXPECT_EQ(FactOf(*events[2], "n_generated"), Fact(int64_t{8}));
  EXPECT_EQ(FactOf(*events[2], "stop"), Fact("limit"));
  EXPECT_GT(events[2]->at, events[1]->at);
  Handle second = Submit({.prompt = "hello again", .n_predict = 500, .attach = attach});
  Step(5);
  Cancel(second);
  Step();
  EXPECT_EQ(News(), "session_attached session_cancelled");
  engine_->Post(EndSessions{.session_id = "agent"});
  Step();
  EXPECT_EQ(News(), "session_ended");
}

TEST_F(EventsEngineTest, SaysNothingOfPlainRequestsAndOfSteps) {
  Handle plain = Submit({.prompt = "hello", .n_predict = 100});
  Finish(plain);
  EXPECT_EQ(log_.newest(), 0U);
}

TEST_F(EventsEngineTest, TellsEveryDecisionOnceAndWhenItsCostIsKnown) {
  const PoolCreated pool = MakePool(prefix_);
  SetPolicy(pool, {.target_tps_per_session = 60,
                   .on_saturation = AdmissionPolicy::OnSaturation::kQueue,
                   .settle_tokens = 20,
                   .max_queue = 1,
                   .queue_timeout_ms = 1'000});
  EXPECT_EQ(News(), "pool_created pool_sealed policy_changed");
  Handle first = Spawn(pool, "one");
  Handle second = Spawn(pool, "two");
  Step(10);
  EXPECT_EQ(Decisions(), (Decided{"guaranteed", "hold"}));
  Step(20);
  EXPECT_EQ(News(), "settle_ended admission") << "held before, queued from now on";
  Handle third = Spawn(pool, "three");
  Step(2);
  EXPECT_EQ(Decisions(), Decided{"reject"}) << "the queue is full";
  Step(120);
  EXPECT_EQ(Decisions(), Decided{"timeout"});
  Handle fourth = Spawn(pool, "four", /*overcommit=*/true);
  Step(2);
  EXPECT_EQ(Decisions(), Decided{"overcommit"});
}

TEST_F(EventsEngineTest, TellsWhenAFloorBreaksAndWhenItHoldsAgain) {
  const PoolCreated pool = MakePool(prefix_);
  SetPolicy(pool, {.target_tps_per_session = 80, .settle_tokens = 4});
  Handle first = Spawn(pool, "one");
  Step(20);
  News();
  Handle plain = Submit({.prompt = "s", .n_predict = 80});
  Step(70);
  EXPECT_EQ(News(), "floor_broken");
  Finish(plain);
  Step(200);
  const auto events = Take();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front()->kind, EventKind::kFloorHeld);
  EXPECT_GE(std::get<double>(FactOf(*events.front(), "mean_tps")), 80);
}

TEST_F(EventsEngineTest, TellsWhoGivesWayWhenCellsRunShort) {
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(Submit({.prompt = std::string(100, 'a' + static_cast<char>(i)),
                              .n_predict = 300,
                              .attach = {.session_id = "s" + std::to_string(i)}}));
  }
  RunAll();
  const std::string news = News();
  EXPECT_NE(news.find("session_parked kv_pressure"), std::string::npos) << news;
  EXPECT_NE(news.find("session_resumed"), std::string::npos) << news;
}

TEST_F(EventsEngineTest, ASnapshotShowsAtLeastWhatTheLogTells) {
  PostPool("some prefix");
  for (int i = 0; i < 50 && log_.newest() < 2; ++i) {
    Step();
    EXPECT_EQ(engine_->Snapshot()->pools.empty(), log_.newest() == 0);
  }
  EXPECT_EQ(engine_->Snapshot()->pools.at(0).residency, "resident");
}

TEST_F(EventsEngineTest, TellsOnceThatItDrains) {
  engine_->BeginDrain();
  Step(3);
  EXPECT_EQ(News(), "draining");
}

}  // namespace
}  // namespace polykv
