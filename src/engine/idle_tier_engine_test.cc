// Idle sessions and pools in the host store.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

const std::string kPrefix(200, 's');
constexpr TimeUs kSecond = 1'000'000;
constexpr auto kCellBytes = static_cast<int64_t>(sizeof(FakeCell));  // of a state

class IdleTierTest : public EngineTest {
 protected:
  static EngineConfig Config() {
    EngineConfig config = DefaultConfig();
    config.host_bytes = 1 << 20;
    return config;
  }
  void SetUp() override { Build(Config()); }

  struct Turn {
    std::string text;  // of the prompt and the answer
    Finished finished;
  };
  // One turn of a session; its text must be what it is without any cache.
  Turn Talk(const std::string& session, const std::string& prompt, const std::string& pool = "") {
    Handle handle = Submit({.prompt = prompt, .attach = {.pool = pool, .session_id = session}});
    const Answer& answer = this->Finish(handle);
    EXPECT_EQ(answer.text, Alone(prompt));
    return {prompt + answer.text, answer.finished.value_or(Finished{})};
  }
  SessionView Session(const std::string& id) const {
    const auto snapshot = engine_->Snapshot();
    for (const SessionView& view : snapshot->sessions) {
      if (view.session_id == id) return view;
    }
    return {};
  }
  // Somebody decodes for longer than sessions stay hot.
  void DecodeForSixSeconds() {
    Handle other = Submit({.prompt = "other", .n_predict = 100});
    Step(3);
    clock_.AdvanceUs(6 * kSecond);
    Step(3);
    Cancel(other);
    Step();
  }
  const Counters& counters() {
    snapshot_ = engine_->Snapshot();
    return snapshot_->counters;
  }

 private:
  std::shared_ptr<const EngineSnapshot> snapshot_;
};

TEST_F(IdleTierTest, AnIdleSessionLeavesWhileOthersDecodeAndComesBackWithoutAPrefill) {
  const Turn first = Talk("s", "the first turn");
  EXPECT_EQ(Session("s").n_tokens, 14 + 15);
  DecodeForSixSeconds();
  EXPECT_EQ(Session("s").n_tokens, 0);
  EXPECT_EQ(Session("s").n_saved, 14 + 15);
  EXPECT_EQ(Session("s").ctx_used, 14 + 15);
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 1);
  EXPECT_EQ(backend_->CellsUsed(), 0);
  const Turn second = Talk("s", first.text + " the second");
  EXPECT_EQ(second.finished.timings.n_prompt_cached, 14 + 15);
  EXPECT_EQ(counters().sessions_restored, 1U);
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 0);
}

TEST_F(IdleTierTest, NothingLeavesWhileNobodyDecodesOrBeforeItsTime) {
  Talk("s", "the first turn");
  clock_.AdvanceUs(60 * kSecond);
  Step(2);
  EXPECT_EQ(Session("s").n_saved, 0);
  Talk("s", "the first turn");
  Handle other = Submit({.prompt = "other", .n_predict = 100});
  Step(3);
  clock_.AdvanceUs(4 * kSecond);
  Step(3);
  EXPECT_EQ(Session("s").n_saved, 0);
  clock_.AdvanceUs(2 * kSecond);
  Step();
  EXPECT_GT(Session("s").n_saved, 0);
}

TEST_F(IdleTierTest, WhatASessionSharesStaysWithIt) {
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  EXPECT_EQ(Session("s").n_tokens, 200);
  EXPECT_EQ(Session("s").n_saved, 3 + 15);
  EXPECT_EQ(engine_->Snapshot()->host_session_bytes, kCellBytes * 18 + 16 + 4 * 218);
  EXPECT_TRUE(engine_->Snapshot()->pools[0].auto_pinned);
  EXPECT_EQ(backend_->CellsUsed(), 200);
  const Turn second = Talk("s", first.text + "two", "p");
  EXPECT_EQ(second.finished.report.cache_n, 200 + 18);
}

TEST_F(IdleTierTest, WhatOnlyACooledSessionStillHoldsFollowsItUnderPressure) {
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  EXPECT_EQ(backend_->CellsUsed(), 200);
  Handle big = Submit({.prompt = std::string(900, 'b'), .n_predict = 100});
  EXPECT_FALSE(this->Finish(big).finished->truncated);
  EXPECT_EQ(Session("s").n_tokens, 0);
  EXPECT_EQ(Session("s").n_saved, 218);
  EXPECT_EQ(engine_->Snapshot()->host_session_bytes, kCellBytes * 218 + 2 * 16 + 4 * 218);
  EXPECT_EQ(Talk("s", first.text + "two").finished.timings.n_prompt_cached, 218);
  EXPECT_EQ(counters().sessions_restored, 1U);
}

TEST_F(IdleTierTest, WhatOnlyACooledSessionStillHoldsFollowsItWhileOthersDecode) {
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  DecodeForSixSeconds();
  EXPECT_EQ(backend_->CellsUsed(), 0);
  EXPECT_EQ(Talk("s", kPrefix.substr(0, 90) + "!").finished.timings.n_prompt_cached, 90);
}

TEST_F(IdleTierTest, AWholeSessionSharesWhatItCanWhenItComesBack) {
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  DecodeForSixSeconds();
  MakePool(kPrefix, "again");
  EXPECT_EQ(Talk("s", first.text + "two", "again").finished.report.cache_n, 218);
  EXPECT_EQ(Session("s").n_shared, 200);
}

TEST_F(IdleTierTest, ATurnThatGoesAnotherWayUsesWhatAgrees) {
  const Turn first = Talk("s", "abcdefghij");
  DecodeForSixSeconds();
  EXPECT_EQ(Talk("s", "abcdeXYZ").finished.timings.n_prompt_cached, 5);
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 0);
}

TEST_F(IdleTierTest, ATurnThatOnlySharesThePoolLeavesTheSavedCellsAlone) {
  MakePool(kPrefix, "p");
  Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  EXPECT_EQ(Talk("s", kPrefix + "Xother", "p").finished.report.cache_n, 200);
  EXPECT_EQ(counters().sessions_restored, 0U);
}

TEST_F(IdleTierTest, AnEntryThatIsGoneMeansAPrefill) {
  EngineConfig config = Config();
  config.host_bytes = 2'000;
  Build(config);
  MakePool(kPrefix, "p");
  Change(ChangePool::Action::kPin, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 1);
  Talk("t", kPrefix + "of the other session", "p");
  DecodeForSixSeconds();
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 1);
  const Turn second = Talk("s", first.text + "two", "p");
  EXPECT_EQ(second.finished.report.cache_n, 200);
  EXPECT_EQ(second.finished.report.miss_reason, "evicted");
}

TEST_F(IdleTierTest, WithoutAHostStoreSessionsStayUntilCellsAreShort) {
  EngineConfig config = Config();
  config.host_bytes = 0;
  Build(config);
  Talk("s", "the first turn");
  DecodeForSixSeconds();
  EXPECT_EQ(Session("s").n_tokens, 29);
  Handle big = Submit({.prompt = std::string(1'000, 'b'), .n_predict = 8});
  this->Finish(big);
  EXPECT_EQ(Session("s").n_tokens, 0);
  EXPECT_EQ(Session("s").n_saved, 0);
}

TEST_F(IdleTierTest, UnderPressureSessionsGoToTheHostStore) {
  const std::string prompt(500, 'i');
  const Turn first = Talk("s", prompt);
  Handle big = Submit({.prompt = "big", .n_predict = 900});
  EXPECT_FALSE(this->Finish(big).finished->truncated);
  EXPECT_EQ(Session("s").n_saved, 515);
  EXPECT_EQ(Talk("s", first.text + "next").finished.timings.n_prompt_cached, 515);
}

TEST_F(IdleTierTest, ReturningSessionsWaitForCellsAsOthersDo) {
  const Turn first = Talk("s", std::string(500, 'i'));
  Handle big = Submit({.prompt = "big", .n_predict = 900});
  Step(800);
  Handle back = Submit({.prompt = first.text + "next", .attach = {.session_id = "s"}});
  Step(3);
  EXPECT_FALSE(Look(back).started.has_value());
  EXPECT_EQ(counters().sessions_restored, 0U);
  EXPECT_EQ(this->Finish(back).finished->timings.n_prompt_cached, 515);
  EXPECT_EQ(back.answer.text, Alone(first.text + "next"));
  EXPECT_FALSE(this->Finish(big).finished->truncated);
}

TEST_F(IdleTierTest, MoreSessionsThanSequencesKeepTheirCellsThere) {
  EngineConfig config = Config();
  config.max_sessions = 2;
  Build(config);
  MakePool(kPrefix, "p");
  std::vector<Turn> turns;
  for (int i = 0; i < 4; ++i) {
    turns.push_back(Talk(std::to_string(i), kPrefix + "session " + std::to_string(i), "p"));
    clock_.AdvanceUs(1'000);
  }
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 2);
  for (int i = 0; i < 4; ++i) {
    const Turn again = Talk(std::to_string(i), turns[static_cast<size_t>(i)].text + "!", "p");
    EXPECT_EQ(again.finished.report.cache_n, 200 + 9 + 15) << i;
  }
}

TEST_F(IdleTierTest, ADetachedSessionWithoutItsPoolIsComputed) {
  EngineConfig config = Config();
  config.max_sessions = 1;
  Build(config);
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  Talk("t", "short");
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 1);
  EXPECT_EQ(Talk("s", first.text + "two").finished.timings.n_prompt_cached, 0);
}

TEST_F(IdleTierTest, TheEndOfASessionFreesItsEntry) {
  Talk("s", "the first turn");
  DecodeForSixSeconds();
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 1);
  engine_->Post(EndSessions{.session_id = "s"});
  Step();
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 0);
  EXPECT_EQ(engine_->Snapshot()->host_bytes, 0);
}

TEST_F(IdleTierTest, APoolPastItsGraceComesBackByACopy) {
  const PoolCreated pool = MakePool(kPrefix, "p");
  clock_.AdvanceUs(29 * kSecond);
  Step();
  EXPECT_EQ(engine_->Snapshot()->pools[0].residency, "resident");
  clock_.AdvanceUs(2 * kSecond);
  Step();
  EXPECT_EQ(engine_->Snapshot()->pools[0].residency, "evicted");
  EXPECT_EQ(engine_->Snapshot()->host_pools, 1);
  EXPECT_EQ(backend_->CellsUsed(), 0);
  EXPECT_EQ(Talk("s", kPrefix + "one", "p").finished.report.cache_n, 200);
  EXPECT_EQ(counters().pool_prefilled_tokens, 200U);
  EXPECT_EQ(counters().pools_restored, 1U);
}

TEST_F(IdleTierTest, AReleasedPoolLeavesTheHostStore) {
  MakePool(kPrefix, "p");
  clock_.AdvanceUs(31 * kSecond);
  Step();
  EXPECT_EQ(engine_->Snapshot()->host_pools, 1);
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  EXPECT_EQ(engine_->Snapshot()->host_pools, 0);
}

TEST_F(IdleTierTest, APoolThatTheStoreCannotTakeStaysUntilCellsAreShort) {
  EngineConfig config = Config();
  config.host_bytes = 1'000;
  Build(config);
  MakePool(kPrefix, "p");
  clock_.AdvanceUs(60 * kSecond);
  Step(2);
  EXPECT_EQ(engine_->Snapshot()->pools[0].residency, "resident");
  Handle big = Submit({.prompt = std::string(1'000, 'b'), .n_predict = 8});
  this->Finish(big);
  EXPECT_EQ(engine_->Snapshot()->pools[0].residency, "evicted");
  EXPECT_EQ(engine_->Snapshot()->host_pools, 0);
}

TEST_F(IdleTierTest, PinnedAndUsedPoolsStay) {
  MakePool(kPrefix, "p");
  MakePool("x" + kPrefix, "q");
  Change(ChangePool::Action::kPin, "p");
  Talk("s", "x" + kPrefix + "one", "q");
  clock_.AdvanceUs(60 * kSecond);
  Step(2);
  const auto snapshot = engine_->Snapshot();
  for (const PoolView& pool : snapshot->pools) EXPECT_EQ(pool.residency, "resident");
}

class IdleTierWithWindowTest : public IdleTierTest {
 protected:
  void SetUp() override { Build(Config(), {.n_ctx = 1024, .n_swa = 16}); }
};

TEST_F(IdleTierWithWindowTest, ASessionComesBackAsFarAsItsWindowWasSaved) {
  MakePool(kPrefix, "p");
  const std::string own = "a long text of its own; ";
  const Turn first = Talk("s", kPrefix + own, "p");
  DecodeForSixSeconds();
  const Turn second = Talk("s", first.text + "goes on", "p");
  EXPECT_EQ(second.finished.report.cache_n, 200 + 24 + 15);
  DecodeForSixSeconds();
  const Turn third = Talk("s", kPrefix + "a long textile", "p");
  EXPECT_EQ(third.finished.report.cache_n, 200) << "from the pool: what is behind it has a gap";
}

TEST_F(IdleTierWithWindowTest, WhatOnlyACooledSessionStillHoldsFollowsIt) {
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  DecodeForSixSeconds();
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  DecodeForSixSeconds();
  EXPECT_EQ(backend_->CellsUsed(), 0);
  EXPECT_EQ(Talk("s", first.text + "two").finished.timings.n_prompt_cached, 218);
}

TEST_F(IdleTierWithWindowTest, APoolComesBackWhole) {
  MakePool(kPrefix, "p");
  clock_.AdvanceUs(31 * kSecond);
  Step();
  EXPECT_EQ(engine_->Snapshot()->host_pools, 1);
  EXPECT_EQ(Talk("s", kPrefix + "one", "p").finished.report.cache_n, 200);
  EXPECT_EQ(counters().pools_restored, 1U);
  const Turn part = Talk("t", kPrefix.substr(0, 100) + "other", "p");
  EXPECT_EQ(part.finished.report.miss_reason, "window");
}

class IdleTierSplitTest : public IdleTierTest {
 protected:
  void SetUp() override {
    EngineConfig config = Config();
    config.n_ctx_plain = config.n_ctx_session = 256;
    config.max_sessions = 1;
    Build(config, {.n_ctx = 256 * config.n_seq_max(), .unified = false});
  }
};

TEST_F(IdleTierSplitTest, ASessionThatGivesItsSequenceUpIsSavedWhole) {
  MakePool(kPrefix, "p");
  const Turn first = Talk("s", kPrefix + "one", "p");
  Talk("t", "short");
  EXPECT_EQ(Session("s").n_saved, 200 + 3 + 15);
  EXPECT_EQ(Talk("s", first.text + "two", "p").finished.report.cache_n, 218);
}

TEST_F(IdleTierTest, ASnapshotOfASessionBringsItBack) {
  const Turn first = Talk("s", "the first turn");
  DecodeForSixSeconds();
  CreatePool command;
  command.from_session = "s";
  auto channel = command.channel;
  engine_->Post(std::move(command));
  Step();
  EXPECT_EQ(Take(channel)->value().prefix_len, 14 + 15);
}

TEST_F(IdleTierTest, AForkComesBackBehindItsParent) {
  const PoolCreated parent = MakePool(kPrefix, "p");
  CreatePool command;
  command.parent = "p";
  command.append = true;
  command.tokens = Tokens(" and more");
  command.name = "child";
  engine_->Post(std::move(command));
  RunAll();
  clock_.AdvanceUs(31 * kSecond);
  Step();
  clock_.AdvanceUs(kSecond);
  Step();
  EXPECT_EQ(engine_->Snapshot()->host_pools, 2);
  EXPECT_EQ(backend_->CellsUsed(), 0);
  EXPECT_EQ(Talk("s", kPrefix + " and more of it", "child").finished.report.cache_n, 209);
  EXPECT_EQ(counters().pools_restored, 2U);
  EXPECT_EQ(counters().pool_prefilled_tokens, 209U);
}

}  // namespace
}  // namespace polykv
