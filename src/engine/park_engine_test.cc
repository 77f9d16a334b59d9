// Streams that outgrow the cache: the newest wait in host memory and lose nothing.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class ParkTest : public EngineTest {
 protected:
  static EngineConfig Config(int64_t park_bytes) {
    EngineConfig config = DefaultConfig();
    config.park_bytes = park_bytes;
    return config;
  }
  static std::string Prompt(int i) { return "stream " + std::to_string(i); }

  std::vector<Handle> SubmitFour(int32_t n_predict = 512) {
    std::vector<Handle> handles;
    for (int i = 0; i < 4; ++i) {
      handles.push_back(Submit({.prompt = Prompt(i), .n_predict = n_predict}));
    }
    return handles;
  }
  // Steps until the newest is parked.
  void StepUntilParked(int32_t n_parked = 1) {
    for (int i = 0; i < 2'000 && engine_->Snapshot()->n_parked < n_parked; ++i) Step();
    ASSERT_EQ(engine_->Snapshot()->n_parked, n_parked);
  }
  void ExpectWhole(Handle& handle, const std::string& prompt, int32_t n_predict) {
    const Answer& answer = Finish(handle);
    ASSERT_TRUE(answer.finished.has_value());
    EXPECT_FALSE(answer.finished->truncated);
    EXPECT_EQ(answer.text, Alone(prompt, n_predict));
  }
  const Counters& counters() {
    snapshot_ = engine_->Snapshot();
    return snapshot_->counters;
  }

 private:
  std::shared_ptr<const EngineSnapshot> snapshot_;
};

TEST_F(ParkTest, FourStreamsThatOutgrowTheCacheEndWhole) {
  std::vector<Handle> handles = SubmitFour();
  RunAll();
  for (int i = 0; i < 4; ++i) ExpectWhole(handles[static_cast<size_t>(i)], Prompt(i), 512);
  EXPECT_GE(counters().parked, 3U);
  EXPECT_EQ(counters().resumed, counters().parked);
  EXPECT_EQ(counters().kv_exhausted, 0U);
  EXPECT_EQ(engine_->Snapshot()->parked_bytes, 0);
}

TEST_F(ParkTest, WithoutABudgetTheVictimsEndTruncatedAndTheRestWhole) {
  Build(Config(0));
  std::vector<Handle> handles = SubmitFour();
  RunAll();
  int n_whole = 0;
  for (int i = 0; i < 4; ++i) {
    const Answer& answer = Look(handles[static_cast<size_t>(i)]);
    ASSERT_TRUE(answer.finished.has_value()) << i;
    const bool whole = answer.text.size() == 512;
    n_whole += whole ? 1 : 0;
    EXPECT_EQ(answer.finished->truncated, !whole);
    EXPECT_EQ(answer.finished->report.stop_reason, whole ? "" : "kv_exhausted");
    EXPECT_GT(answer.text.size(), 200U);
    EXPECT_EQ(answer.text, Alone(Prompt(i), 512).substr(0, answer.text.size()));
  }
  EXPECT_GE(n_whole, 1);
  EXPECT_EQ(counters().parked, 0U);
}

TEST_F(ParkTest, TheNewestWaitsAndTheOldestOfTheWaitingComesBackFirst) {
  std::vector<Handle> handles = SubmitFour();
  StepUntilParked();
  const auto snapshot = engine_->Snapshot();
  for (const SlotView& slot : snapshot->slots) EXPECT_EQ(slot.is_parked, slot.task_id == 3);
  StepUntilParked(2);
  while (!Look(handles[0]).done()) Step();
  while (!Look(handles[1]).done()) Step();
  Step(2);
  EXPECT_EQ(counters().kv_exhausted, 0U);
  EXPECT_GT(Look(handles[2]).text.size(), Look(handles[3]).text.size());
  for (int i = 0; i < 4; ++i) ExpectWhole(handles[static_cast<size_t>(i)], Prompt(i), 512);
}

TEST_F(ParkTest, NoRequestStartsWhileOneIsParked) {
  std::vector<Handle> handles;
  for (int i = 0; i < 3; ++i) {
    handles.push_back(Submit({.prompt = Prompt(i), .n_predict = 600}));
  }
  StepUntilParked();
  Handle small = Submit({.prompt = "s", .n_predict = 1});
  Step(3);
  EXPECT_FALSE(Look(small).started.has_value());
  EXPECT_EQ(engine_->Snapshot()->n_waiting, 1);
  ExpectWhole(small, "s", 1);
  for (int i = 0; i < 3; ++i) ExpectWhole(handles[static_cast<size_t>(i)], Prompt(i), 600);
}

TEST_F(ParkTest, OnlyWhatIsNotSharedIsSaved) {
  const std::string prefix(300, 's');
  MakePool(prefix, "p");
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(
        Submit({.prompt = prefix + Prompt(i), .n_predict = 512, .attach = {.pool = "p"}}));
  }
  StepUntilParked();
  const auto snapshot = engine_->Snapshot();
  for (const SlotView& slot : snapshot->slots) {
    if (!slot.is_parked) continue;
    EXPECT_EQ(slot.n_tokens - slot.n_saved, 300);
    const auto cell_bytes = static_cast<int64_t>(sizeof(FakeCell));
    EXPECT_EQ(snapshot->parked_bytes, cell_bytes * slot.n_saved + 16 + 4 * slot.n_tokens);
  }
  for (int i = 0; i < 4; ++i) {
    ExpectWhole(handles[static_cast<size_t>(i)], prefix + Prompt(i), 512);
  }
  EXPECT_EQ(counters().pool_prefilled_tokens, 300U);
}

TEST_F(ParkTest, APoolThatOnlyParkedRequestsUseGivesWayToOneThatRuns) {
  const std::string prefix(300, 's');
  MakePool(prefix, "p");
  Handle older = Submit({.prompt = "older", .n_predict = 900});
  Step(2);
  std::vector<Handle> handles;
  for (int i = 0; i < 2; ++i) {
    handles.push_back(
        Submit({.prompt = prefix + Prompt(i), .n_predict = 400, .attach = {.pool = "p"}}));
  }
  ExpectWhole(older, "older", 900);
  EXPECT_EQ(engine_->Snapshot()->counters.kv_exhausted, 0U);
  for (int i = 0; i < 2; ++i) {
    ExpectWhole(handles[static_cast<size_t>(i)], prefix + Prompt(i), 400);
  }
}

TEST_F(ParkTest, APinnedPoolDoesNot) {
  const std::string prefix(300, 's');
  MakePool(prefix, "p");
  Change(ChangePool::Action::kPin, "p");
  Handle older = Submit({.prompt = "older", .n_predict = 900});
  Step(2);
  Handle newer = Submit({.prompt = prefix + "n", .n_predict = 600, .attach = {.pool = "p"}});
  EXPECT_TRUE(Finish(older).finished->truncated);
  ExpectWhole(newer, prefix + "n", 600);
  EXPECT_EQ(counters().pool_prefilled_tokens, 300U);
}

TEST_F(ParkTest, AParkedSessionShowsAndGoesOn) {
  Handle older = Submit({.prompt = "older", .n_predict = 700});
  Step(2);
  Handle newer = Submit({.prompt = "newer", .n_predict = 600, .attach = {.session_id = "n"}});
  StepUntilParked();
  const auto snapshot = engine_->Snapshot();
  ASSERT_EQ(snapshot->sessions.size(), 1U);
  EXPECT_EQ(snapshot->sessions[0].state, "parked");
  EXPECT_GT(snapshot->sessions[0].n_saved, 200);
  EXPECT_EQ(snapshot->sessions[0].ctx_used, snapshot->sessions[0].n_saved);
  ExpectWhole(older, "older", 700);
  ExpectWhole(newer, "newer", 600);
  const std::string turn = "newer" + newer.answer.text + "?";
  Handle next = Submit({.prompt = turn, .n_predict = 8, .attach = {.session_id = "n"}});
  ExpectWhole(next, turn, 8);
  EXPECT_EQ(next.answer.finished->timings.n_prompt_cached, 5 + 599);
}

TEST_F(ParkTest, ParkedTimeIsNotDecoding) {
  Handle older = Submit({.prompt = "older", .n_predict = 700});
  Step(2);
  Handle newer = Submit({.prompt = "newer", .n_predict = 600, .attach = {.session_id = "n"}});
  StepUntilParked();
  const double before = engine_->Snapshot()->sessions[0].tps;
  EXPECT_GT(before, 0);
  clock_.AdvanceUs(60'000'000);
  Step();
  EXPECT_DOUBLE_EQ(engine_->Snapshot()->sessions[0].tps, before);
  while (engine_->Snapshot()->n_parked > 0) Step();
  Step();
  EXPECT_GE(engine_->Snapshot()->sessions[0].tps, before);
  ExpectWhole(newer, "newer", 600);
}

TEST_F(ParkTest, CancelledWhileParked) {
  std::vector<Handle> handles = SubmitFour();
  StepUntilParked();
  Cancel(handles[3]);
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_parked, 0);
  EXPECT_EQ(engine_->Snapshot()->parked_bytes, 0);
  EXPECT_EQ(counters().cancelled, 1U);
  for (int i = 0; i < 3; ++i) ExpectWhole(handles[static_cast<size_t>(i)], Prompt(i), 512);
}

TEST_F(ParkTest, TheEndOfAParkedSessionFreesAll) {
  Handle older = Submit({.prompt = "older", .n_predict = 700});
  Step(2);
  Handle newer = Submit({.prompt = "newer", .n_predict = 600, .attach = {.session_id = "n"}});
  StepUntilParked();
  engine_->Post(EndSessions{.session_id = "n"});
  Step();
  EXPECT_EQ(Look(newer).problem->status, 410);
  EXPECT_EQ(engine_->Snapshot()->parked_bytes, 0);
  EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
  ExpectWhole(older, "older", 700);
}

TEST_F(ParkTest, ParkedRequestsEndWithTheEngine) {
  std::vector<Handle> handles = SubmitFour();
  StepUntilParked();
  engine_->BeginDrain();
  Step(5);
  EXPECT_FALSE(Look(handles[3]).done()) << "a draining server lets them run";
  engine_->Stop();
  for (Handle& handle : handles) EXPECT_TRUE(Look(handle).done());
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ParkTest, ABudgetForOneLetsTheOthersEndEarly) {
  Build(Config(8'000));
  std::vector<Handle> handles = SubmitFour();
  RunAll();
  int n_whole = 0;
  for (Handle& handle : handles) n_whole += Look(handle).finished->truncated ? 0 : 1;
  EXPECT_GE(counters().parked, 1U);
  EXPECT_EQ(static_cast<uint64_t>(4 - n_whole), counters().kv_exhausted);
  EXPECT_TRUE(n_whole == 2 || n_whole == 3) << n_whole;
}

TEST_F(ParkTest, OneThatCannotFitAloneEndsTruncated) {
  MakePool(std::string(400, 'p'), "p");
  Change(ChangePool::Action::kPin, "p");
  Handle handle = Submit({.prompt = "alone", .n_predict = 900});
  const Answer& answer = Finish(handle);
  EXPECT_TRUE(answer.finished->truncated);
  EXPECT_EQ(answer.finished->report.stop_reason, "kv_exhausted");
  EXPECT_EQ(answer.text, Alone("alone", 900).substr(0, answer.text.size()));
  EXPECT_EQ(counters().parked, 0U);
}

TEST_F(ParkTest, NoRoomAgainstTheAccountingParksTheNewest) {
  Handle oldest = Submit({.prompt = "oldest", .n_predict = 40});
  Step(2);
  Handle newest = Submit({.prompt = "newest", .n_predict = 40});
  Step(5);
  backend_->RefuseNextDecode();
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_parked, 1);
  Step(10);
  EXPECT_EQ(engine_->Snapshot()->n_parked, 1) << "it waits until somebody has ended";
  ExpectWhole(oldest, "oldest", 40);
  ExpectWhole(newest, "newest", 40);
  EXPECT_EQ(counters().parked, 1U);
}

TEST_F(ParkTest, TheOtherChoicesOfARequestWaitToo) {
  Handle handle = Submit({.prompt = "several", .n_predict = 500, .n_choices = 3});
  RunAll();
  EXPECT_GT(counters().parked, 0U);
  ExpectWhole(handle, "several", 500);
  for (Handle& choice : handle.choices) ExpectWhole(choice, "several", 500);
}

TEST_F(ParkTest, APromptThatIsBeingComputedGoesBackToTheQueue) {
  EngineConfig config = DefaultConfig();
  config.prefill_chunk = 16;
  Build(config);
  Handle older = Submit({.prompt = "older", .n_predict = 800});
  Step(600);
  Handle newer = Submit({.prompt = std::string(400, 'n'), .n_predict = 8});
  Step(2);
  EXPECT_TRUE(Look(newer).started.has_value());
  for (int i = 0; i < 100 && engine_->Snapshot()->n_waiting == 0; ++i) Step();
  EXPECT_EQ(engine_->Snapshot()->n_waiting, 1);
  EXPECT_EQ(engine_->Snapshot()->n_parked, 0);
  ExpectWhole(older, "older", 800);
  ExpectWhole(newer, std::string(400, 'n'), 8);
}

class ParkWithDraftsTest : public ParkTest {
 protected:
  void SetUp() override { Build(DefaultConfig(), {.n_ctx = 1024, .n_draft = 5, .wrong_every = 4}); }
};

TEST_F(ParkWithDraftsTest, TheTextIsTheSame) {
  std::vector<Handle> handles = SubmitFour();
  RunAll();
  for (int i = 0; i < 4; ++i) ExpectWhole(handles[static_cast<size_t>(i)], Prompt(i), 512);
  EXPECT_GT(counters().parked, 0U);
}

class ParkWithWindowTest : public ParkTest {
 protected:
  void SetUp() override { Build(DefaultConfig(), {.n_ctx = 1024, .n_swa = 16}); }
};

TEST_F(ParkWithWindowTest, TheWindowComesBack) {
  const std::string prefix(300, 's');
  MakePool(prefix, "p");
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(
        Submit({.prompt = prefix + Prompt(i), .n_predict = 300, .attach = {.pool = "p"}}));
  }
  for (int i = 0; i < 4; ++i) {
    ExpectWhole(handles[static_cast<size_t>(i)], prefix + Prompt(i), 300);
  }
  EXPECT_GT(counters().parked, 0U);
}

class ParkWithoutEndsTest : public ParkTest {
 protected:
  void SetUp() override { Build(DefaultConfig(), {.n_ctx = 1024, .recurrent = true}); }
};

TEST_F(ParkWithoutEndsTest, AMemoryThatCannotPartWithAnEndIsSavedWhole) {
  FakeBackend backend({.n_ctx = 1536, .recurrent = true});
  EngineConfig config = DefaultConfig();
  config.n_ctx_plain = 1536;
  Engine alone(&backend, &clock_, config);
  auto request = std::make_unique<GenerationRequest>();
  request->prompt = Tokens(Prompt(3));
  request->sampler = backend.MakeSampler();
  request->n_predict = 512;
  const auto channel = request->channel;
  alone.Post(SubmitGeneration{std::move(request)});
  while (alone.RunOneStep()) {
  }
  Answer expected;
  Collect(*channel, expected);

  std::vector<Handle> handles = SubmitFour();
  const Answer& answer = Finish(handles[3]);
  EXPECT_GT(counters().parked, 0U);
  EXPECT_FALSE(answer.finished->truncated);
  EXPECT_EQ(answer.text, expected.text);
}

}  // namespace
}  // namespace polykv
