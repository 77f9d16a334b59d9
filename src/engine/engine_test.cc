// Requests, slots and sessions.
#include "engine/engine.h"

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

using GenerationTest = EngineTest;

TEST_F(GenerationTest, StreamsTheTextAndFinishes) {
  Handle handle = Submit({.prompt = "hello", .n_predict = 8});
  const Answer& answer = Finish(handle);
  ASSERT_TRUE(answer.finished.has_value());
  EXPECT_EQ(answer.text.size(), 8U);
  EXPECT_EQ(answer.text, answer.finished->text);
  EXPECT_EQ(answer.finished->stop, StopKind::kLimit);
  EXPECT_FALSE(answer.finished->truncated);
  EXPECT_EQ(answer.finished->timings.n_generated, 8);
  EXPECT_EQ(answer.finished->timings.n_prompt_processed, 5);
  EXPECT_EQ(answer.finished->n_tokens_cached, 5 + 7);  // the last token was never computed
}

TEST_F(GenerationTest, AFreeSlotShowsNoFiguresOfTheRequestThatLeft) {
  Handle handle = Submit({.prompt = "hello", .n_predict = 8});
  const auto slot_id = static_cast<size_t>(Finish(handle).finished->slot_id);
  const SlotView after = engine_->Snapshot()->slots[slot_id];
  EXPECT_FALSE(after.is_processing);
  EXPECT_GE(after.task_id, 0);
  EXPECT_EQ(after.timings.n_generated, 0);
  EXPECT_EQ(after.n_predict, -1);
}

TEST_F(GenerationTest, ARequestWithoutAPromptEndsAtOnceAndLeavesTheCells) {
  EngineConfig config = DefaultConfig();
  config.n_parallel = 1;
  Build(config);
  Handle before = Submit({.prompt = "hello", .n_predict = 8});
  Finish(before);
  Handle empty = Submit({.prompt = ""});
  const Answer& answer = Finish(empty);
  ASSERT_TRUE(answer.finished.has_value());
  EXPECT_EQ(answer.finished->stop, StopKind::kNone);
  EXPECT_EQ(answer.finished->text, "");
  EXPECT_EQ(answer.finished->n_tokens_cached, 5 + 7);
  Handle after = Submit({.prompt = "hello you"});
  EXPECT_EQ(Finish(after).finished->timings.n_prompt_cached, 5);
}

TEST_F(GenerationTest, ManyStreamsGiveWhatEachGivesAlone) {
  std::vector<Handle> handles;
  std::vector<std::string> prompts;
  for (int i = 0; i < 10; ++i) {
    prompts.push_back("prompt number " + std::string(static_cast<size_t>(i), 'x'));
    handles.push_back(Submit({.prompt = prompts.back(), .n_predict = 12 + i}));
  }
  RunAll();
  for (size_t i = 0; i < handles.size(); ++i) {
    const Answer& answer = Look(handles[i]);
    ASSERT_TRUE(answer.finished.has_value()) << i;
    EXPECT_EQ(answer.text, Alone(prompts[i], 12 + static_cast<int32_t>(i)));
  }
}

TEST_F(GenerationTest, DecodesOthersWhileALongPromptIsComputed) {
  EngineConfig config = DefaultConfig();
  config.prefill_chunk = 32;
  Build(config);
  Handle decoding = Submit({.prompt = "a", .n_predict = 100});
  Step(3);
  const size_t before = Look(decoding).text.size();
  Handle longer = Submit({.prompt = std::string(320, 'p'), .n_predict = 1});
  Step(9);
  EXPECT_EQ(Look(decoding).text.size(), before + 9);
  EXPECT_FALSE(Look(longer).done());
  Step(1);
  EXPECT_TRUE(Look(longer).done());
}

TEST_F(GenerationTest, TheNextRequestReusesTheSlotsTokens) {
  Handle first = Submit({.prompt = "a common beginning, one"});
  Finish(first);
  Handle second = Submit({.prompt = "a common beginning, two"});
  const Answer& answer = Finish(second);
  EXPECT_EQ(answer.finished->timings.n_prompt_cached, 20);
  EXPECT_EQ(answer.finished->slot_id, first.answer.finished->slot_id);
  EXPECT_EQ(answer.text, Alone("a common beginning, two"));
}

TEST_F(GenerationTest, OfSlotsThatEndInOneStepTheFirstIsTakenNext) {
  for (const char* prompt : {"aaaa", "bbbb", "cccc", "dddd"}) Submit({.prompt = prompt});
  RunAll();
  Handle next = Submit({.prompt = "eeee"});
  EXPECT_EQ(Finish(next).finished->slot_id, 0);
}

TEST_F(GenerationTest, TheSamePromptAgainLeavesOneTokenToCompute) {
  Handle first = Submit({.prompt = "again"});
  Finish(first);
  Handle second = Submit({.prompt = "again"});
  EXPECT_EQ(Finish(second).finished->timings.n_prompt_cached, 4);
  EXPECT_EQ(second.answer.text, first.answer.text);
}

TEST_F(GenerationTest, APromptThatDoesNotFitIsRefusedWithBothCounts) {
  Handle handle = Submit({.prompt = std::string(1024, 'x')});
  const Answer& answer = Finish(handle);
  ASSERT_TRUE(answer.problem.has_value());
  EXPECT_EQ(answer.problem->status, 400);
  EXPECT_EQ(answer.problem->type, "exceed_context_size_error");
  EXPECT_EQ(answer.problem->n_prompt_tokens, 1024);
  EXPECT_EQ(answer.problem->n_ctx, 1024);
  EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 0);
}

TEST_F(GenerationTest, TheContextWallTruncates) {
  EngineConfig config = DefaultConfig();
  config.n_ctx_plain = 32;
  Build(config);
  Handle handle = Submit({.prompt = "0123456789", .n_predict = -1});
  const Answer& answer = Finish(handle);
  ASSERT_TRUE(answer.finished.has_value());
  EXPECT_TRUE(answer.finished->truncated);
  EXPECT_EQ(answer.finished->n_tokens_cached, 31);
}

TEST_F(GenerationTest, TooManyWaitingRequestsAreRefusedAndTheOthersServed) {
  EngineConfig config = DefaultConfig();
  config.max_waiting = 2;
  Build(config);
  std::vector<Handle> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(Submit({.prompt = "x"}));
  RunAll();
  EXPECT_TRUE(Look(handles[0]).finished.has_value());
  EXPECT_TRUE(Look(handles[1]).finished.has_value());
  ASSERT_TRUE(Look(handles[2]).problem.has_value());
  EXPECT_EQ(handles[2].answer.problem->status, 503);
  EXPECT_TRUE(handles[2].answer.problem->retry_after_s.has_value());
}

TEST_F(GenerationTest, ASessionKeepsItsCellsBetweenTurns) {
  Handle first = Submit({.prompt = "turn one.", .attach = {.session_id = "s"}});
  Finish(first);
  const std::string second_prompt = "turn one." + first.answer.text + " turn two.";
  Handle other = Submit({.prompt = "somebody else"});
  Handle second = Submit({.prompt = second_prompt, .attach = {.session_id = "s"}});
  const Answer& answer = Finish(second);
  EXPECT_EQ(answer.finished->timings.n_prompt_cached, 9 + 15);
  EXPECT_EQ(answer.text, Alone(second_prompt));
  EXPECT_EQ(engine_->Snapshot()->sessions.size(), 1U);
}

TEST_F(GenerationTest, TheSecondRequestOfASessionWaitsForTheFirst) {
  Handle first = Submit({.prompt = "one", .n_predict = 50, .attach = {.session_id = "s"}});
  Handle second = Submit({.prompt = "two", .n_predict = 5, .attach = {.session_id = "s"}});
  Step(20);
  EXPECT_FALSE(Look(second).started.has_value());
  RunAll();
  EXPECT_TRUE(Look(first).finished.has_value());
  EXPECT_TRUE(Look(second).finished.has_value());
}

TEST_F(GenerationTest, SessionEndForgetsTheSession) {
  Handle handle = Submit({.prompt = "x", .attach = {.session_id = "s", .session_end = true}});
  Finish(handle);
  EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
  EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 0);
}

TEST_F(GenerationTest, AnIdleSessionIsForgottenAfterItsTime) {
  EngineConfig config = DefaultConfig();
  config.session_idle_ms = 1000;
  Build(config);
  Handle handle = Submit({.prompt = "x", .attach = {.session_id = "s"}});
  Finish(handle);
  clock_.AdvanceUs(900'000);
  Step();
  EXPECT_EQ(engine_->Snapshot()->sessions.size(), 1U);
  clock_.AdvanceUs(200'000);
  Step();
  EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
  EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 0);
}

TEST_F(GenerationTest, MoreSessionsThanSequencesStayKnown) {
  EngineConfig config = DefaultConfig();
  config.max_sessions = 2;
  Build(config);
  for (const char* id : {"a", "b", "c"}) {
    Handle handle =
        Submit({.prompt = std::string("prompt of ") + id, .attach = {.session_id = id}});
    EXPECT_TRUE(Finish(handle).finished.has_value());
  }
  const auto snapshot = engine_->Snapshot();
  ASSERT_EQ(snapshot->sessions.size(), 3U);
  EXPECT_EQ(snapshot->sessions[0].n_tokens, 0);  // the longest idle gave up its cells
  EXPECT_GT(snapshot->sessions[2].n_tokens, 0);
}

TEST_F(GenerationTest, DeletingASessionEndsItsRequestsWithAnError) {
  Handle running = Submit({.prompt = "one", .n_predict = 50, .attach = {.session_id = "s"}});
  Handle waiting = Submit({.prompt = "two", .attach = {.session_id = "s"}});
  Handle other = Submit({.prompt = "other", .n_predict = 50});
  Step(3);
  EndSessions command{.session_id = "s"};
  auto channel = command.channel;
  engine_->Post(std::move(command));
  Step();
  EXPECT_EQ(channel->Next(std::chrono::milliseconds(0))->value(), 1);
  EXPECT_EQ(Look(running).problem->status, 410);
  EXPECT_EQ(Look(waiting).problem->status, 410);
  EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
  EXPECT_EQ(Finish(other).text, Alone("other", 50));
}

TEST_F(GenerationTest, DrainingRefusesNewWorkAndFinishesOld) {
  Handle old = Submit({.prompt = "old", .n_predict = 30});
  Step(3);
  engine_->BeginDrain();
  Handle young = Submit({.prompt = "young"});
  EXPECT_EQ(Finish(young).problem->status, 503);
  EXPECT_EQ(Finish(old).finished->timings.n_generated, 30);
}

TEST_F(GenerationTest, StoppingAnswersEverybody) {
  Handle running = Submit({.prompt = "running", .n_predict = 500});
  Step(3);
  Handle posted = Submit({.prompt = "posted"});
  engine_->Stop();
  EXPECT_EQ(Look(running).problem->status, 503);
  EXPECT_EQ(Look(posted).problem->status, 503);
  Handle late = Submit({.prompt = "late"});
  EXPECT_EQ(Look(late).problem->status, 503);
}

TEST_F(GenerationTest, AComputeErrorHitsOneStream) {
  Handle broken =
      Submit({.prompt = "broken", .n_predict = 40});  // slot 3: the last of equals is taken
  Handle healthy = Submit({.prompt = "healthy", .n_predict = 40});
  Step(5);
  backend_->FailSequence(Look(broken).started->slot_id);
  Step();
  EXPECT_EQ(Look(broken).problem->status, 500);
  backend_->FailSequence(kNoSeq);
  EXPECT_EQ(Finish(healthy).text, Alone("healthy", 40));
}

TEST_F(GenerationTest, TheThreadServesManyClientsAtOnce) {
  engine_->Start();
  std::vector<Handle> handles;
  for (int i = 0; i < 32; ++i) handles.push_back(Submit({.prompt = "p" + std::to_string(i)}));
  for (size_t i = 0; i < handles.size(); ++i) {
    while (!handles[i].answer.done()) {
      Collect(*handles[i].channel, handles[i].answer);
      std::this_thread::yield();
    }
    EXPECT_EQ(handles[i].answer.text, Alone("p" + std::to_string(i)));
  }
  engine_->Stop();
}

TEST_F(GenerationTest, ThinkingEndsWhereTheClientSaysSo) {
  using Outcome = EndReasoning::Outcome;
  const auto end_reasoning = [&](const std::string& id) {
    EndReasoning command = {.completion_id = id};
    const auto channel = command.channel;
    engine_->Post(std::move(command));
    Step();
    return channel->Next(std::chrono::milliseconds(0))->value();
  };
  Handle thinking = Submit({.prompt = "thinking", .n_predict = 12, .reasoning_end = "</t>"});
  Handle plain = Submit({.prompt = "plain", .n_predict = 12});
  Step(3);
  const std::string before = Look(thinking).text;
  EXPECT_EQ(end_reasoning("unknown"), Outcome::kNoCompletion);
  EXPECT_EQ(end_reasoning("plain"), Outcome::kNotAsked);
  EXPECT_EQ(Look(thinking).text.find("</t>"), std::string::npos);
  const size_t n_thought = Look(thinking).text.size();
  EXPECT_GT(n_thought, before.size());
  EXPECT_EQ(end_reasoning("thinking"), Outcome::kDone);
  EXPECT_EQ(Finish(thinking).text.substr(n_thought, 4), "</t>");
  EXPECT_EQ(Finish(plain).text, Alone("plain", 12));
  EXPECT_EQ(end_reasoning("thinking"), Outcome::kNoCompletion);
}

TEST_F(EngineTest, TheCostOfStepsIsLearned) {
  Handle handle = Submit({.prompt = std::string(40, 'a'), .n_predict = 200});
  Finish(handle);
  const StepCost cost = engine_->Snapshot()->step_cost;
  EXPECT_NEAR(cost.Predict({.n_decode = 1, .n_attended = 239}), 6'000, 100);
}

TEST_F(GenerationTest, IsBusyFromTheMomentThatItIsAskedUntilTheAnswer) {
  EXPECT_TRUE(engine_->Idle());
  Handle handle = Submit({.prompt = "hello", .n_predict = 5});
  EXPECT_FALSE(engine_->Idle()) << "also before the first step, which may hang";
  const uint64_t n_steps = engine_->n_steps();
  Step();
  EXPECT_GT(engine_->n_steps(), n_steps);
  EXPECT_FALSE(engine_->Idle());
  Finish(handle);
  EXPECT_TRUE(engine_->Idle());
}

}  // namespace
}  // namespace polykv
