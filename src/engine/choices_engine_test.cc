// Several choices of one request: the prompt is computed once and its cells are shared.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

const std::string kPrompt(200, 'p');

class ChoicesTest : public EngineTest {
 protected:
  void SetUp() override { Build(DefaultConfig(), {.n_ctx = 1024, .n_ubatch = 64}); }

  // Runs to the end; every choice must have finished.
  std::vector<std::string> Texts(Handle& handle) {
    std::vector<std::string> texts = {Finish(handle).text};
    for (Handle& choice : handle.choices) texts.push_back(Finish(choice).text);
    return texts;
  }
};

TEST_F(ChoicesTest, ComputeThePromptOnce) {
  Handle handle = Submit({.prompt = kPrompt, .n_predict = 10, .n_choices = 3});
  Step(4);
  EXPECT_EQ(backend_->n_decoded_tokens(), 200U);
  EXPECT_EQ(backend_->CellsUsed(), 200);
  EXPECT_EQ(Texts(handle), std::vector<std::string>(3, Alone(kPrompt, 10)));
  EXPECT_EQ(backend_->n_decoded_tokens(), 200U + 3 * 9);
  for (const Handle& choice : handle.choices) {
    EXPECT_EQ(choice.answer.finished->timings.n_prompt_processed, 200);
  }
  EXPECT_EQ(backend_->CellsUsed(), 209);  // the first choice's, for the next request
}

TEST_F(ChoicesTest, TheNextRequestGoesOnFromTheFirst) {
  Handle handle = Submit({.prompt = kPrompt, .n_predict = 10, .n_choices = 2});
  Texts(handle);
  Handle next = Submit({.prompt = kPrompt + Alone(kPrompt, 10) + "more"});
  EXPECT_EQ(Finish(next).finished->report.cache_n, 209);
  EXPECT_EQ(next.answer.text, Alone(kPrompt + Alone(kPrompt, 10) + "more"));
}

TEST_F(ChoicesTest, ShareThePoolAndThePrompt) {
  MakePool(kPrompt, "p");
  Handle handle = Submit({.prompt = kPrompt + "and more",
                          .n_predict = 10,
                          .attach = {.pool = "p", .session_id = "s"},
                          .n_choices = 4});
  Step(1);
  EXPECT_EQ(backend_->CellsUsed(), 208);
  EXPECT_EQ(Texts(handle), std::vector<std::string>(4, Alone(kPrompt + "and more", 10)));
  EXPECT_EQ(handle.choices[2].answer.finished->report.cache_n, 200);
  EXPECT_EQ(backend_->CellsUsed(), 208) << "a session keeps the prompt only";
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  EXPECT_EQ(backend_->CellsUsed(), 208) << "the session still holds what it shares";
  engine_->Post(EndSessions{});
  Step();
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ChoicesTest, WaitForAsManySlotsAndNobodyPasses) {
  Handle running = Submit({.prompt = "r", .n_predict = 30});
  Step(2);
  Handle several = Submit({.prompt = kPrompt, .n_predict = 5, .n_choices = 4});
  Handle later = Submit({.prompt = "later", .n_predict = 5});
  Step(5);
  EXPECT_EQ(engine_->Snapshot()->n_running, 1);
  EXPECT_EQ(engine_->Snapshot()->n_waiting, 2);
  EXPECT_EQ(Texts(several), std::vector<std::string>(4, Alone(kPrompt, 5)));
  EXPECT_EQ(Finish(later).text, Alone("later", 5));
}

TEST_F(ChoicesTest, MoreThanSlotsAreRefused) {
  Handle handle = Submit({.prompt = "x", .n_choices = 5});
  EXPECT_EQ(Finish(handle).problem->status, 400);
  for (Handle& choice : handle.choices) EXPECT_EQ(Finish(choice).problem->status, 400);
}

TEST_F(ChoicesTest, AClientThatGoesWhileTheyWaitForThePromptLeavesNothing) {
  Handle handle = Submit({.prompt = kPrompt, .n_choices = 3});
  Step(2);
  EXPECT_EQ(engine_->Snapshot()->n_running, 3);
  Cancel(handle);
  Step();
  EXPECT_EQ(engine_->Snapshot()->n_running, 0);
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ChoicesTest, AFaultOfThePromptIsEveryChoicesAnswer) {
  Handle handle = Submit({.prompt = kPrompt, .n_choices = 3});
  Step();
  backend_->FailSequence(Look(handle).started->slot_id);
  EXPECT_EQ(Finish(handle).problem->status, 500);
  for (Handle& choice : handle.choices) EXPECT_EQ(Look(choice).problem->status, 500);
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ChoicesTest, GiveWayTogetherWhenCellsRunShort) {
  Build(DefaultConfig(), {.n_ctx = 320, .n_ubatch = 64});
  Handle older = Submit({.prompt = "o", .n_predict = 290});
  Step(5);
  Handle several = Submit({.prompt = kPrompt, .n_predict = 60, .n_choices = 3});
  EXPECT_EQ(Finish(older).text, Alone("o", 290));
  for (const std::string& text : Texts(several)) {
    EXPECT_EQ(text, Alone(kPrompt, 60).substr(0, text.size()));
    EXPECT_GE(text.size(), 8U);
  }
}

}  // namespace
}  // namespace polykv
