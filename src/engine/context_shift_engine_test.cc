// Full contexts that make room, in the engine.
#include "engine/context_shift.h"
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

constexpr int32_t kContext = 48;

class ContextShiftTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineConfig config = DefaultConfig();
    config.context_shift = true;
    config.n_ctx_plain = kContext;
    config.n_ctx_session = kContext;
    Build(config);
  }

  // The greedy text of `prompt` in a context of kContext tokens that shifts, by hand.
  std::string Shifting(const std::string& prompt, int32_t n_predict) {
    FakeBackend model({.n_ctx = kContext});
    std::vector<Token> batch_tokens = model.Tokenize(prompt, false, false);
    std::string text;
    Pos n_tokens = 0;
    while (n_predict-- > 0) {
      StepBatch batch;
      for (const Token token : batch_tokens) batch.push_back({token, n_tokens++, 0, true});
      EXPECT_EQ(model.Decode(batch), DecodeStatus::kOk);
      batch_tokens = {model.Choice(static_cast<int32_t>(batch.size()) - 1)};
      text += model.TokenText(batch_tokens[0], false);
      if (n_tokens + 1 < kContext) continue;
      const ShiftRange range = PlanShift(n_tokens, kContext, 0, 0);
      model.RemoveRange(0, range.p0, range.p1);
      model.ShiftPositions(0, range.p1, kToEnd, range.p0 - range.p1);
      n_tokens -= range.p1 - range.p0;
    }
    return text;
  }
};

TEST_F(ContextShiftTest, APlainStreamGoesOnBeyondItsContext) {
  Handle shifting = Submit({.prompt = "a story", .n_predict = 150});
  Handle beside = Submit({.prompt = "a short one", .n_predict = 20});
  const Answer& answer = Finish(shifting);
  ASSERT_TRUE(answer.finished.has_value());
  EXPECT_TRUE(answer.finished->truncated);
  EXPECT_EQ(answer.finished->timings.n_generated, 150);
  EXPECT_EQ(answer.text, Shifting("a story", 150));
  EXPECT_EQ(Finish(beside).text, Alone("a short one", 20));
  EXPECT_FALSE(beside.answer.finished->truncated);
}

TEST_F(ContextShiftTest, TheNextRequestReusesOnlyWhatIsStillThere) {
  Handle first = Submit({.prompt = "a story", .n_predict = 100});
  Finish(first);
  Handle second = Submit({.prompt = "a story", .n_predict = 10});
  EXPECT_EQ(Finish(second).text, Alone("a story", 10));
}

TEST_F(ContextShiftTest, ASessionEndsAtTheWall) {
  Handle session = Submit({.prompt = "a story", .n_predict = 100, .attach = {.session_id = "s"}});
  const Answer& answer = Finish(session);
  EXPECT_TRUE(answer.finished->truncated);
  EXPECT_EQ(answer.finished->n_tokens_cached, kContext - 1);
  EXPECT_EQ(answer.text, Alone("a story", kContext - 7));
}

TEST_F(ContextShiftTest, APooledRequestEndsAtTheWall) {
  MakePool("a long beginning");
  Handle plain = Submit({.prompt = "a long story", .n_predict = 100});
  Handle pooled =
      Submit({.prompt = "a long beginning of", .n_predict = 100, .attach = {.pool = "1000"}});
  EXPECT_EQ(Finish(pooled).finished->n_tokens_cached, kContext - 1);
  EXPECT_TRUE(pooled.answer.finished->truncated);
  EXPECT_EQ(Finish(plain).text, Shifting("a long story", 100));
  Handle again = Submit({.prompt = "a long beginning of", .attach = {.pool = "1000"}});
  EXPECT_EQ(Finish(again).text, Alone("a long beginning of"));
}

}  // namespace
}  // namespace polykv
