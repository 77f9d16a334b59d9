// Speculation: whatever a draft says, the text is the model's, and every cell of a wrong guess is
// taken back.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class DraftEngineTest : public EngineTest {
 protected:
  void BuildDrafting(int32_t n_draft, int32_t wrong_every, int32_t eog_every = 0,
                     int32_t n_ctx = 1024) {
    Build(DefaultConfig(),
          {.n_ctx = n_ctx, .eog_every = eog_every, .n_draft = n_draft, .wrong_every = wrong_every});
  }

  // What a model without drafts says, with the same ends.
  Answer Plain(const Request& request, int32_t eog_every = 0) {
    BuildDrafting(0, 0, eog_every);
    Handle handle = Submit(request);
    return Finish(handle);
  }

  const Counters& Count() const { return engine_->Snapshot()->counters; }
};

TEST_F(DraftEngineTest, RightDraftsAreAcceptedWhole) {
  const Request request{.prompt = "hello", .n_predict = 31};
  const std::string plain = Plain(request).text;
  BuildDrafting(5, 0);
  Handle handle = Submit(request);
  const Answer& answer = Finish(handle);
  EXPECT_EQ(answer.text, plain);
  EXPECT_EQ(answer.finished->timings.n_generated, 31);
  EXPECT_EQ(answer.finished->timings.n_draft, 25);
  EXPECT_EQ(answer.finished->timings.n_draft_accepted, 25);
  EXPECT_EQ(Count().n_decode, 6U) << "the prompt, and five times a token with five guesses";
  EXPECT_EQ(Count().n_accepted_at, (std::vector<uint64_t>{5, 5, 5, 5, 5}));
}

TEST_F(DraftEngineTest, WrongDraftsChangeNothingButTheirCount) {
  const Request request{.prompt = "hello", .n_predict = 40};
  const std::string plain = Plain(request).text;
  BuildDrafting(4, 1);
  Handle handle = Submit(request);
  const Answer& answer = Finish(handle);
  EXPECT_EQ(answer.text, plain);
  EXPECT_GT(answer.finished->timings.n_draft, 140);
  EXPECT_EQ(answer.finished->timings.n_draft_accepted, 0);
  EXPECT_EQ(answer.finished->n_tokens_cached, 5 + 39);
}

TEST_F(DraftEngineTest, PartlyRightDraftsGiveTheSameTextForEveryLength) {
  const Request request{.prompt = "some prompt", .n_predict = 60};
  const std::string plain = Plain(request).text;
  for (const int32_t n_draft : {1, 2, 3, 7, 20}) {
    BuildDrafting(n_draft, 4);
    Handle handle = Submit(request);
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, plain);
    const Timings& timings = answer.finished->timings;
    EXPECT_GT(timings.n_draft_accepted, 0);
    EXPECT_LT(timings.n_draft_accepted, timings.n_draft);
  }
}

TEST_F(DraftEngineTest, ALimitEndsInsideNoDraft) {
  for (int32_t n_predict = 1; n_predict < 12; ++n_predict) {
    const Request request{.prompt = "limit", .n_predict = n_predict};
    const std::string plain = Plain(request).text;
    BuildDrafting(5, 0);
    Handle handle = Submit(request);
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, plain);
    EXPECT_EQ(answer.finished->timings.n_generated, n_predict);
    EXPECT_EQ(answer.finished->timings.n_draft, answer.finished->timings.n_draft_accepted);
    EXPECT_EQ(answer.finished->n_tokens_cached, 5 + n_predict - 1) << "nothing guessed beyond it";
  }
}

TEST_F(DraftEngineTest, TheContextEndsWhereItDoesWithoutDrafts) {
  EngineConfig config = DefaultConfig();
  config.n_ctx_plain = 40;
  Build(config);
  const Request request{.prompt = "context", .n_predict = -1};
  Handle handle = Submit(request);
  const Answer plain = Finish(handle);
  for (const int32_t wrong_every : {0, 3}) {
    Build(config, {.n_ctx = 1024, .n_draft = 6, .wrong_every = wrong_every});
    handle = Submit(request);
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, plain.text);
    EXPECT_TRUE(answer.finished->truncated);
    EXPECT_EQ(answer.finished->n_tokens_cached, plain.finished->n_tokens_cached);
  }
}

TEST_F(DraftEngineTest, AnEndInsideADraftEndsTheStreamThere) {
  for (int i = 0; i < 12; ++i) {
    const Request request{.prompt = "end " + std::to_string(i), .n_predict = 200};
    const Answer plain = Plain(request, /*eog_every=*/20);
    for (const int32_t wrong_every : {0, 5}) {
      BuildDrafting(6, wrong_every, /*eog_every=*/20);
      Handle handle = Submit(request);
      const Answer& answer = Finish(handle);
      EXPECT_EQ(answer.text, plain.text);
      EXPECT_EQ(answer.finished->stop, plain.finished->stop);
      EXPECT_EQ(answer.finished->timings.n_generated, plain.finished->timings.n_generated);
    }
  }
}

TEST_F(DraftEngineTest, AStopWordInsideADraftEndsTheTextThere) {
  const Request request{.prompt = "stop", .n_predict = 60};
  const std::string plain = Plain(request).text;
  const std::string word = plain.substr(25, 2);
  const size_t end = plain.find(word);
  for (const int32_t n_draft : {0, 3, 8}) {
    BuildDrafting(n_draft, 0);
    Handle handle = Submit({.prompt = request.prompt, .n_predict = 60, .stop_words = {word}});
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, plain.substr(0, end));
    EXPECT_EQ(answer.finished->stop, StopKind::kStopWord);
    EXPECT_EQ(answer.finished->timings.n_generated, static_cast<int32_t>(end + 2));
  }
}

TEST_F(DraftEngineTest, AStreamThatIsCancelledGivesItsCellsBack) {
  BuildDrafting(6, 3);
  Handle handle = Submit({.prompt = "cancel me", .n_predict = 500});
  Step(7);
  EXPECT_GT(Look(handle).text.size(), 6U);
  handle.channel->Cancel();
  Step();
  EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 0);
}

TEST_F(DraftEngineTest, ManyStreamsDraftAtOnceBesidePrompts) {
  std::vector<std::string> plain;
  for (int i = 0; i < 6; ++i) plain.push_back(Alone("stream " + std::to_string(i), 50));
  BuildDrafting(4, 5);
  std::vector<Handle> handles;
  for (int i = 0; i < 6; ++i) {
    handles.push_back(Submit({.prompt = "stream " + std::to_string(i), .n_predict = 50}));
    Step(3);
  }
  for (size_t i = 0; i < handles.size(); ++i) EXPECT_EQ(Finish(handles[i]).text, plain[i]);
}

TEST_F(DraftEngineTest, DraftsGiveWayToThoseWhoNeedTheCells) {
  const std::string a = Alone("first", 80);
  const std::string b = Alone("second", 80);
  EngineConfig config = DefaultConfig();
  config.first_stretch = 0;
  Build(config, {.n_ctx = 5 + 6 + 160, .n_draft = 12, .wrong_every = 2});
  Handle first = Submit({.prompt = "first", .n_predict = 80});
  Handle second = Submit({.prompt = "second", .n_predict = 80});
  EXPECT_EQ(Finish(first).text, a);
  EXPECT_EQ(Finish(second).text, b);
  EXPECT_FALSE(first.answer.finished->truncated || second.answer.finished->truncated);
  EXPECT_EQ(Count().kv_exhausted, 0U);
}

TEST_F(DraftEngineTest, ARefusedStepKeepsItsDraftsForTheNext) {
  BuildDrafting(4, 3);
  const std::string plain = Alone("again", 40);
  Handle handle = Submit({.prompt = "again", .n_predict = 40});
  Handle other = Submit({.prompt = "makes room", .n_predict = 1});
  Step(3);
  backend_->RefuseNextDecode();
  EXPECT_EQ(Finish(handle).text, plain);
}

TEST_F(DraftEngineTest, APooledSessionDraftsAsWellAsAPlainOne) {
  const std::string prefix = "the prefix that many share. ";
  BuildDrafting(5, 6);
  Handle plain = Submit({.prompt = prefix + "own", .n_predict = 60});
  const Answer alone = Finish(plain);
  MakePool(prefix, "shared");
  Handle pooled = Submit({.prompt = prefix + "own", .n_predict = 60, .attach = {.pool = "shared"}});
  const Answer& answer = Finish(pooled);
  EXPECT_EQ(answer.text, alone.text);
  EXPECT_EQ(answer.finished->report.cache_n, static_cast<int32_t>(prefix.size()));
  EXPECT_EQ(answer.finished->timings.n_draft, alone.finished->timings.n_draft);
  EXPECT_EQ(answer.finished->timings.n_draft_accepted, alone.finished->timings.n_draft_accepted);
}

TEST_F(DraftEngineTest, ChoicesThatShareAPromptDraftEachOnItsOwn) {
  const std::string plain = Alone("choose", 30);
  BuildDrafting(4, 4);
  Handle handle = Submit({.prompt = "choose", .n_predict = 30, .n_choices = 3});
  EXPECT_EQ(Finish(handle).text, plain);
  for (Handle& choice : handle.choices) {
    EXPECT_EQ(Finish(choice).text, plain);
    EXPECT_GT(choice.answer.finished->timings.n_draft_accepted, 10);
  }
}

class DraftWithWindowTest : public DraftEngineTest {
 protected:
  void BuildWithWindow(int32_t wrong_every) {
    Build(DefaultConfig(), {.n_ctx = 1024,
                            .n_batch = 128,
                            .n_ubatch = 32,
                            .n_swa = 16,
                            .n_draft = 5,
                            .wrong_every = wrong_every});
  }
};

TEST_F(DraftWithWindowTest, WrongDraftsAreTakenBackWhereTheWindowHasMoved) {
  for (const int32_t wrong_every : {1, 3, 0}) {
    BuildWithWindow(wrong_every);
    Handle handle = Submit({.prompt = "hello", .n_predict = 60});
    EXPECT_EQ(Finish(handle).text, Alone("hello", 60)) << wrong_every;
  }
}

TEST_F(DraftWithWindowTest, APromptBesideADraftTakesNothingFromItsWindow) {
  BuildWithWindow(1);
  Handle handle = Submit({.prompt = "hello", .n_predict = 60});
  Step(20);
  const std::string prompt(300, 'p');
  Handle other = Submit({.prompt = prompt, .n_predict = 20});
  EXPECT_EQ(Finish(other).text, Alone(prompt, 20));
  EXPECT_EQ(Finish(handle).text, Alone("hello", 60));
}

TEST_F(DraftEngineTest, OnlyAcceptedTokensCountForTheRate) {
  BuildDrafting(4, 1);  // a step of 10 ms gives one token, whatever is guessed
  Handle handle = Submit({.prompt = "rate", .n_predict = 40, .attach = {.session_id = "s"}});
  const Answer& answer = Finish(handle);
  EXPECT_NEAR(answer.finished->report.session_tps, 100, 5);
}

}  // namespace
}  // namespace polykv
