// Clients that vanish, and cells that run short.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

const std::string kPrefix(100, 's');

class CancelTest : public EngineTest {
 protected:
  void SetUp() override { Build(DefaultConfig(), {.n_ctx = 2048, .n_ubatch = 64}); }
};

TEST_F(CancelTest, InTheQueue) {
  std::vector<Handle> running;
  for (int i = 0; i < 4; ++i)
    running.push_back(Submit({.prompt = "r" + std::to_string(i), .n_predict = 40}));
  Step(2);
  Handle queued = Submit({.prompt = "queued", .attach = {.session_id = "q"}});
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_waiting, 1);
  queued.channel->Cancel();
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_waiting, 0);
  EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
  RunAll();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Look(running[static_cast<size_t>(i)]).text, Alone("r" + std::to_string(i), 40));
  }
}

TEST_F(CancelTest, WhileWaitingForThePool) {
  PostPool(std::string(500, 'p'), "p", /*wait=*/false);
  Handle waiting = Submit({.prompt = std::string(500, 'p') + "x", .attach = {.pool = "p"}});
  Step(2);
  EXPECT_FALSE(Look(waiting).started.has_value());
  const auto snapshot = engine_->Snapshot();
  ASSERT_EQ(snapshot->pools[0].sessions.size(), 1U);
  EXPECT_EQ(snapshot->sessions[0].state, "queued");
  waiting.channel->Cancel();
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_waiting, 0);
  RunAll();
  EXPECT_EQ(backend_->CellsUsed(), 500);
}

TEST_F(CancelTest, WhilePrefilling) {
  MakePool(kPrefix, "p");
  Handle neighbour = Submit({.prompt = "neighbour", .n_predict = 40});
  Step(2);
  Handle gone = Submit({.prompt = kPrefix + std::string(900, 'x'), .attach = {.pool = "p"}});
  Step(2);
  EXPECT_GT(backend_->CellsUsed(), 300);
  gone.channel->Cancel();
  Step();
  EXPECT_EQ(backend_->CellsUsed(), 100 + 9 + 4);
  EXPECT_EQ(Finish(neighbour).text, Alone("neighbour", 40));
}

TEST_F(CancelTest, WhileDecoding) {
  MakePool(kPrefix, "p");
  Handle neighbour = Submit({.prompt = kPrefix + "n", .n_predict = 40, .attach = {.pool = "p"}});
  Handle gone = Submit({.prompt = kPrefix + "g", .n_predict = 400, .attach = {.pool = "p"}});
  Step(20);
  gone.channel->Cancel();
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_running, 1);
  EXPECT_EQ(Finish(neighbour).text, Alone(kPrefix + "n", 40));
  EXPECT_EQ(backend_->CellsUsed(), 100);
  EXPECT_EQ(engine_->Snapshot()->counters.cancelled, 1U);
}

TEST_F(CancelTest, OfAPlainRequestFreesItsSlotsCells) {
  Handle gone = Submit({.prompt = "plain", .n_predict = 400});
  Step(10);
  gone.channel->Cancel();
  Step();
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(CancelTest, OfATurnLeavesWhatTheSessionHeldBefore) {
  Handle first = Submit({.prompt = "turn one", .attach = {.session_id = "s"}});
  Finish(first);
  const std::string second = "turn one" + first.answer.text;
  Handle gone =
      Submit({.prompt = second + " turn two", .n_predict = 400, .attach = {.session_id = "s"}});
  Step(10);
  gone.channel->Cancel();
  Step();
  EXPECT_EQ(backend_->CellsUsed(), 8 + 15);
  Handle again = Submit({.prompt = second + " other two", .attach = {.session_id = "s"}});
  EXPECT_EQ(Finish(again).finished->timings.n_prompt_cached, 8 + 15);
  EXPECT_EQ(again.answer.text, Alone(second + " other two"));
}

class ExhaustionTest : public EngineTest {};

TEST_F(ExhaustionTest, APoolInTheCacheStaysIntact) {
  MakePool(kPrefix, "p");
  Change(ChangePool::Action::kPin, "p");
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i)
    handles.push_back(Submit({.prompt = "s" + std::to_string(i), .n_predict = 512}));
  RunAll();
  for (int i = 0; i < 4; ++i) {
    const Answer& answer = Look(handles[static_cast<size_t>(i)]);
    EXPECT_FALSE(answer.finished->truncated);
    EXPECT_EQ(answer.text, Alone("s" + std::to_string(i), 512));
  }
  Handle after = Submit({.prompt = kPrefix + "after", .attach = {.pool = "p"}});
  EXPECT_EQ(Finish(after).finished->report.cache_n, 100);
  EXPECT_EQ(after.answer.text, Alone(kPrefix + "after"));
  EXPECT_EQ(engine_->Snapshot()->counters.pool_prefilled_tokens, 100U);
}

TEST_F(ExhaustionTest, IdleSessionsGiveWayBeforeAnyRunningRequest) {
  Handle idle = Submit({.prompt = std::string(400, 'i'), .attach = {.session_id = "idle"}});
  Finish(idle);
  Handle big = Submit({.prompt = "big", .n_predict = 900});
  EXPECT_FALSE(Finish(big).finished->truncated);
  EXPECT_EQ(engine_->Snapshot()->sessions.size(), 1U);  // still known
  EXPECT_EQ(engine_->Snapshot()->sessions[0].n_tokens, 0);
}

TEST_F(ExhaustionTest, ARequestStartsOnlyWhenItsPromptAndAFirstStretchFit) {
  Handle first = Submit({.prompt = std::string(600, 'a'), .n_predict = 20});
  Handle second = Submit({.prompt = std::string(600, 'b'), .n_predict = 20});
  Step(3);
  EXPECT_TRUE(Look(first).started.has_value());
  EXPECT_FALSE(Look(second).started.has_value());
  RunAll();
  EXPECT_FALSE(Look(first).finished->truncated);
  EXPECT_FALSE(Look(second).finished->truncated);
}

TEST_F(ExhaustionTest, WhatCannotFitBesidePinnedPoolsIsRefused) {
  MakePool(std::string(600, 'p'), "p");
  Change(ChangePool::Action::kPin, "p");
  Handle handle = Submit({.prompt = std::string(500, 'x')});
  const Answer& answer = Finish(handle);
  EXPECT_EQ(answer.problem->status, 503);
  EXPECT_EQ(answer.problem->type, "no_free_cells");
  Handle fits = Submit({.prompt = std::string(300, 'y')});
  EXPECT_TRUE(Finish(fits).finished.has_value());
}

TEST_F(ExhaustionTest, AServerFullOfIdleSessionsOfPoolsStillAdmits) {
  for (int i = 0; i < 3; ++i) {
    const std::string prefix(280, static_cast<char>('a' + i));
    MakePool(prefix, prefix.substr(0, 1));
    Handle handle =
        Submit({.prompt = prefix + "x",
                .attach = {.pool = prefix.substr(0, 1), .session_id = prefix.substr(0, 1)}});
    Finish(handle);
  }
  Handle big = Submit({.prompt = std::string(900, 'z'), .n_predict = 8});
  EXPECT_TRUE(Finish(big).finished.has_value());
}

}  // namespace
}  // namespace polykv
