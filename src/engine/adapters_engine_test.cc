// Requests, sessions and pools with different adapter sets, in the engine.
#include <algorithm>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class AdaptersTest : public EngineTest {
 protected:
  void SetUp() override { Build(DefaultConfig(), {.n_ctx = 1024, .n_adapters = 2}); }

  static AdapterSet Set(int32_t id, float scale = 1.0F) { return AdapterSet({{id, scale}}, 2); }

  Handle SubmitWith(std::optional<AdapterSet> adapters, const std::string& prompt,
                    int32_t n_predict = 16, AttachSpec attach = {}) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt = Tokens(prompt);
    request->sampler = backend_->MakeSampler();
    request->n_predict = n_predict;
    request->attach = std::move(attach);
    request->adapters = std::move(adapters);
    request->stream = true;
    Handle handle{request->channel, {}};
    engine_->Post(SubmitGeneration{std::move(request)});
    return handle;
  }

  void SetGlobal(const AdapterSet& adapters) {
    SetAdapters command{.adapters = adapters};
    const auto channel = command.channel;
    engine_->Post(std::move(command));
    engine_->RunOneStep();
    ASSERT_TRUE(channel->Next(std::chrono::milliseconds(0)).has_value());
    ASSERT_EQ(engine_->Snapshot()->adapters, adapters);
  }

  // The text of a model that does nothing else.
  static std::string Plain(const AdapterSet& adapters, const std::string& prompt,
                           int32_t n_predict = 16) {
    FakeBackend model({.n_adapters = 2});
    model.UseAdapters(adapters);
    std::vector<Token> next = model.Tokenize(prompt, false, false);
    std::string text;
    Pos pos = 0;
    while (n_predict-- > 0) {
      StepBatch batch;
      for (const Token token : next) batch.push_back({token, pos++, 0, true});
      EXPECT_EQ(model.Decode(batch), DecodeStatus::kOk);
      next = {model.Choice(static_cast<int32_t>(batch.size()) - 1)};
      text += model.TokenText(next[0], false);
    }
    return text;
  }
};

TEST_F(AdaptersTest, StreamsOfTwoSetsNeverWaitMoreThanFourStepsForEachOther) {
  std::vector<Handle> streams;
  for (int32_t i = 0; i < 4; ++i) streams.push_back(SubmitWith(Set(i % 2), "tell me", 40));
  std::vector<size_t> n_tokens(4);
  std::vector<int> n_waited(4);
  while (std::any_of(streams.begin(), streams.end(),
                     [](const Handle& stream) { return !stream.answer.done(); })) {
    Step();
    for (size_t i = 0; i < streams.size(); ++i) {
      const Answer& answer = Look(streams[i]);
      const bool moved = answer.done() || answer.text.size() > n_tokens[i];
      n_waited[i] = moved ? 0 : n_waited[i] + 1;
      n_tokens[i] = answer.text.size();
      ASSERT_LE(n_waited[i], 4) << "stream " << i;
    }
  }
  EXPECT_EQ(streams[0].answer.text, Plain(Set(0), "tell me", 40));
  EXPECT_EQ(streams[1].answer.text, Plain(Set(1), "tell me", 40));
  EXPECT_EQ(streams[2].answer.text, streams[0].answer.text);
  EXPECT_EQ(streams[3].answer.text, streams[1].answer.text);
}

TEST_F(AdaptersTest, ALongPromptOfAnotherSetLeavesAStreamItsTurns) {
  Build(DefaultConfig(), {.n_ctx = 1024, .n_batch = 64, .n_ubatch = 64, .n_adapters = 2});
  Handle stream = SubmitWith(Set(0), "tell me", 40);
  Step(3);
  Handle prompt = SubmitWith(Set(1), std::string(800, 'x'), 1);
  size_t n_tokens = Look(stream).text.size();
  while (!Look(prompt).done()) {
    Step(5);
    const size_t n = Look(stream).text.size();
    EXPECT_TRUE(n > n_tokens || stream.answer.done());
    n_tokens = n;
  }
}

TEST_F(AdaptersTest, TokensOfAnotherSetAreNotReused) {
  Handle first = SubmitWith(Set(0), "a shared beginning");
  Finish(first);
  Handle other = SubmitWith(Set(1), "a shared beginning");
  EXPECT_EQ(Finish(other).text, Plain(Set(1), "a shared beginning"));
  EXPECT_EQ(other.answer.finished->timings.n_prompt_cached, 0);
  Handle same = SubmitWith(Set(1), "a shared beginning");
  EXPECT_EQ(Finish(same).text, other.answer.text);
  EXPECT_GT(same.answer.finished->timings.n_prompt_cached, 0);
}

TEST_F(AdaptersTest, ASessionThatChangesItsSetStartsAgain) {
  const AttachSpec session{.session_id = "s"};
  Handle first = SubmitWith(Set(0), "a turn", 4, session);
  const std::string text = "a turn" + Finish(first).text + " and another";
  Handle changed = SubmitWith(Set(0, 0.5F), text, 16, session);
  EXPECT_EQ(Finish(changed).text, Plain(Set(0, 0.5F), text));
  EXPECT_EQ(changed.answer.finished->report.cache_n, 0);
}

TEST_F(AdaptersTest, ARequestThatNamesNoneHasTheServersSetOfItsStart) {
  SetGlobal(Set(0));
  Handle running = SubmitWith(std::nullopt, "tell me");
  Step(3);
  SetGlobal(Set(1));
  Handle later = SubmitWith(std::nullopt, "tell me");
  Handle bare = SubmitWith(AdapterSet(), "tell me");
  EXPECT_EQ(Finish(running).text, Plain(Set(0), "tell me"));
  EXPECT_EQ(Finish(later).text, Plain(Set(1), "tell me"));
  EXPECT_EQ(Finish(bare).text, Plain({}, "tell me"));
}

TEST_F(AdaptersTest, APoolBelongsToItsSet) {
  SetGlobal(Set(0));
  const PoolCreated pool = MakePool("a long beginning", "p");
  const AttachSpec attach{.pool = "p"};
  Handle other = SubmitWith(Set(1), "a long beginning of it", 16, attach);
  EXPECT_EQ(Finish(other).text, Plain(Set(1), "a long beginning of it"));
  EXPECT_EQ(other.answer.finished->report.miss_reason, "adapter");
  EXPECT_EQ(other.answer.finished->report.cache_n, 0);
  EXPECT_EQ(engine_->Snapshot()->counters.miss.adapter, 1U);
  SetGlobal({});
  Handle same = SubmitWith(Set(0), "a long beginning of it", 16, attach);
  EXPECT_EQ(Finish(same).text, Plain(Set(0), "a long beginning of it"));
  EXPECT_EQ(same.answer.finished->report.cache_n, 16);

  EXPECT_NE(MakePool("a long beginning").pool_id, pool.pool_id) << "of the server's set now";
  const PoolChannel named = PostPool("a long beginning", "p");
  RunAll();
  EXPECT_EQ(Take(named)->problem().type, "name_taken");
  SetGlobal(Set(0));
  EXPECT_EQ(MakePool("a long beginning").pool_id, pool.pool_id);
}

}  // namespace
}  // namespace polykv
