// Embeddings, alone and beside generations.
#include <random>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

using EmbeddingAnswer = std::optional<Result<std::vector<PromptVectors>>>;

class EmbedEngineTest : public EngineTest {
 protected:
  using EmbeddingChannel = decltype(SubmitEmbedding::channel);

  static EngineConfig EmbedConfig() {
    EngineConfig config = DefaultConfig();
    config.max_embeds = 4;
    config.prefill_chunk = 16;
    return config;
  }
  static FakeBackendOptions SmallBatches() { return {.n_ctx = 256, .n_batch = 32, .n_ubatch = 32}; }
  void SetUp() override { Build(EmbedConfig(), SmallBatches()); }

  EmbeddingChannel Embed(const std::vector<std::string>& prompts) {
    SubmitEmbedding command;
    for (const std::string& prompt : prompts) command.prompts.push_back(Tokens(prompt));
    auto channel = command.channel;
    engine_->Post(std::move(command));
    return channel;
  }
  static EmbeddingAnswer Take(const EmbeddingChannel& channel) {
    return channel->Next(std::chrono::milliseconds(0));
  }
  static int StatusOf(const EmbeddingAnswer& answer) {
    if (!answer.has_value()) return 0;
    return answer->ok() ? 200 : answer->problem().status;
  }

  // The prompt's vectors on a model of its own.
  PromptVectors AloneVectors(const std::string& prompt) const {
    FakeBackend backend({.n_batch = 512, .n_ubatch = 512, .pooled = backend_->info().pooled});
    StepBatch batch;
    for (const Token token : Tokens(prompt)) {
      batch.push_back({token, static_cast<Pos>(batch.size()), /*seq=*/0, /*output=*/true});
    }
    EXPECT_EQ(backend.Embed(batch), DecodeStatus::kOk);
    PromptVectors vectors;
    const size_t first = backend.info().pooled ? batch.size() - 1 : 0;
    for (size_t i = first; i < batch.size(); ++i) {
      vectors.push_back(backend.Vector(0, static_cast<int32_t>(i)));
    }
    return vectors;
  }
  void ExpectVectors(const EmbeddingAnswer& answer, const std::vector<std::string>& prompts) const {
    ASSERT_EQ(StatusOf(answer), 200);
    ASSERT_EQ(answer->value().size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(answer->value()[i], AloneVectors(prompts[i])) << prompts[i];
    }
  }
};

TEST_F(EmbedEngineTest, VectorsComeInTheOrderOfThePrompts) {
  const std::vector<std::string> prompts = {"one", "two", "three", "four", "five", "six", "one"};
  const auto channel = Embed(prompts);
  RunAll();
  ExpectVectors(Take(channel), prompts);
  EXPECT_EQ(backend_->CellsUsed(), 0);
  EXPECT_EQ(engine_->Snapshot()->counters.n_prompt_processed, 3 + 3 + 5 + 4 + 4 + 3 + 3U);
}

TEST_F(EmbedEngineTest, WithoutPoolingEveryTokenHasAVector) {
  FakeBackendOptions options = SmallBatches();
  options.pooled = false;
  Build(EmbedConfig(), options);
  const auto channel = Embed({"some", "text"});
  RunAll();
  const EmbeddingAnswer answer = Take(channel);
  ExpectVectors(answer, {"some", "text"});
  EXPECT_EQ(answer->value()[1].size(), 4U);
}

TEST_F(EmbedEngineTest, ABatchHasAsManyWholePromptsAsFit) {
  const std::vector<std::string> first = {std::string(20, 'a'), std::string(10, 'b')};
  const std::vector<std::string> second = {std::string(5, 'c'), "d", "e", "f", "g"};
  const auto one = Embed(first);
  const auto two = Embed(second);
  RunAll();
  ExpectVectors(Take(one), first);
  ExpectVectors(Take(two), second);
  EXPECT_EQ(backend_->embed_batches(), (std::vector<size_t>{30, 5 + 1 + 1 + 1, 1}));
}

TEST_F(EmbedEngineTest, ALongPromptGoesInPartsWhereTheModelAllowsIt) {
  FakeBackendOptions options = SmallBatches();
  options.embeds_in_parts = true;
  Build(EmbedConfig(), options);
  const std::vector<std::string> prompts = {"short", std::string(70, 'p'), "end", "last"};
  const auto one = Embed({prompts[0]});
  const auto rest = Embed({prompts[1], prompts[2], prompts[3]});
  RunAll();
  ExpectVectors(Take(one), {prompts[0]});
  ExpectVectors(Take(rest), {prompts[1], prompts[2], prompts[3]});
  EXPECT_EQ(backend_->embed_batches(), (std::vector<size_t>{32, 32, 11 + 3 + 4}));
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(EmbedEngineTest, PromptsThatNeverFitAreRefused) {
  const auto too_large = Embed({"fits", std::string(33, 'x')});
  Step();
  const EmbeddingAnswer answer = Take(too_large);
  ASSERT_EQ(StatusOf(answer), 500);
  EXPECT_NE(answer->problem().message.find("(33 tokens) is too large"), std::string::npos);

  EngineConfig config = EmbedConfig();
  config.n_ctx_plain = 16;
  Build(config, SmallBatches());
  const auto too_long = Embed({std::string(17, 'x')});
  const auto just_fits = Embed({std::string(16, 'x')});
  RunAll();
  EXPECT_EQ(Take(too_long)->problem().type, "exceed_context_size_error");
  EXPECT_EQ(StatusOf(Take(just_fits)), 200);
}

TEST_F(EmbedEngineTest, AStreamWaitsForOneSmallBatchPerToken) {
  Handle stream = Submit({.prompt = "go", .n_predict = 40});
  Step(3);
  const size_t before = Look(stream).text.size();
  const auto channel = Embed(std::vector<std::string>(12, "12345678"));
  Step(5);
  EXPECT_EQ(Look(stream).text.size(), before + 5);
  EXPECT_EQ(backend_->embed_batches(), std::vector<size_t>(5, 16));
  EXPECT_EQ(StatusOf(Take(channel)), 0);
  Step();
  EXPECT_EQ(StatusOf(Take(channel)), 200);
  EXPECT_EQ(Finish(stream).text, Alone("go", 40));
}

TEST_F(EmbedEngineTest, AClientThatLeavesIsDropped) {
  FakeBackendOptions options = SmallBatches();
  options.embeds_in_parts = true;
  Build(EmbedConfig(), options);
  const auto gone = Embed({std::string(100, 'g')});
  const auto stays = Embed({"stays"});
  Step();
  EXPECT_EQ(backend_->CellsUsed(), 32);
  gone->Cancel();
  RunAll();
  EXPECT_EQ(StatusOf(Take(gone)), 0);
  ExpectVectors(Take(stays), {"stays"});
  EXPECT_EQ(backend_->embed_batches(), (std::vector<size_t>{32, 5}));
  EXPECT_EQ(engine_->Snapshot()->counters.cancelled, 1U);
}

TEST_F(EmbedEngineTest, AFaultHitsOneRequest) {
  backend_->FailSequence(EmbedConfig().n_seq_max() - 2);  // the second seat
  const auto good = Embed({"good"});
  const auto bad = Embed({"bad", "worse"});
  const auto fine = Embed({"fine"});
  Step();
  ExpectVectors(Take(good), {"good"});
  EXPECT_EQ(StatusOf(Take(bad)), 500);
  ExpectVectors(Take(fine), {"fine"});
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(EmbedEngineTest, IdleCellsMakeRoomAndRunningOnesAreWaitedFor) {
  Handle idle = Submit({.prompt = std::string(120, 'i'), .n_predict = 1});
  Finish(idle);
  Handle running = Submit({.prompt = std::string(120, 'r'), .n_predict = 100});
  Step();
  const auto channel = Embed({std::string(32, 'e')});
  RunAll();
  ExpectVectors(Take(channel), {std::string(32, 'e')});
  EXPECT_EQ(Look(running).text, Alone(std::string(120, 'r'), 100));
}

TEST_F(EmbedEngineTest, WithoutCellsToHopeForItIsAnAnswer) {
  CreatePool command{.tokens = Tokens(std::string(240, 'p')), .name = "", .pin = true};
  engine_->Post(std::move(command));
  RunAll();
  const auto channel = Embed({std::string(32, 'e')});
  const auto fits = Embed({std::string(16, 'f')});
  RunAll();
  const EmbeddingAnswer answer = Take(channel);
  ASSERT_EQ(StatusOf(answer), 503);
  EXPECT_EQ(answer->problem().type, "no_free_cells");
  ExpectVectors(Take(fits), {std::string(16, 'f')});
}

TEST_F(EmbedEngineTest, TheQueueIsLimitedAndDrains) {
  EngineConfig config = EmbedConfig();
  config.max_waiting = 2;
  Build(config, SmallBatches());
  const auto one = Embed({"1"});
  const auto two = Embed({"2"});
  const auto three = Embed({"3"});
  RunAll();
  EXPECT_EQ(StatusOf(Take(one)), 200);
  EXPECT_EQ(StatusOf(Take(two)), 200);
  EXPECT_EQ(Take(three)->problem().type, "too_many_waiting");
  const auto open = Embed(std::vector<std::string>(9, "open"));
  Step();
  EXPECT_FALSE(engine_->Idle());
  engine_->BeginDrain();
  const auto late = Embed({"late"});
  RunAll();
  EXPECT_EQ(StatusOf(Take(open)), 200);
  EXPECT_EQ(StatusOf(Take(late)), 503);
  EXPECT_TRUE(engine_->Idle());
}

TEST_F(EmbedEngineTest, StopAnswersWhoWaits) {
  FakeBackendOptions options = SmallBatches();
  options.embeds_in_parts = true;
  Build(EmbedConfig(), options);
  const auto begun = Embed({std::string(100, 'g')});
  Step();
  const auto posted = Embed({"posted"});
  engine_->Stop();
  const auto after = Embed({"after"});
  for (const auto& channel : {begun, posted, after}) EXPECT_EQ(StatusOf(Take(channel)), 503);
}

TEST_F(EmbedEngineTest, AModelWithoutCellsEmbedsAndRefusesTheRest) {
  FakeBackendOptions options = SmallBatches();
  options.generates = false;
  Build(EmbedConfig(), options);
  const auto channel = Embed({"first", "second"});
  Handle generation = Submit({.prompt = "hello"});
  const PoolChannel pool = PostPool("a pool");
  RunAll();
  ExpectVectors(Take(channel), {"first", "second"});
  EXPECT_EQ(Look(generation).problem->status, 500);
  EXPECT_EQ(EngineTest::Take(pool)->problem().status, 501);
}

TEST_F(EmbedEngineTest, ARandomMixIsAnsweredRight) {
  std::mt19937 random(77);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (const bool in_parts : {false, true}) {
    FakeBackendOptions options = SmallBatches();
    options.embeds_in_parts = in_parts;
    Build(EmbedConfig(), options);
    std::vector<std::pair<EmbeddingChannel, std::vector<std::string>>> open;
    std::vector<Handle> streams;
    for (int i = 0; i < 400; ++i) {
      if (pick(4) == 0) {
        std::vector<std::string> prompts;
        for (int n = 1 + pick(6); n > 0; --n) {
          prompts.emplace_back(1 + pick(in_parts ? 90 : 32), static_cast<char>('a' + pick(26)));
        }
        open.emplace_back(Embed(prompts), prompts);
      }
      if (pick(8) == 0) {
        streams.push_back(Submit({.prompt = std::string(1 + pick(100), 's'), .n_predict = 30}));
      }
      if (!open.empty() && pick(10) == 0) {
        open.back().first->Cancel();
        open.pop_back();
      }
      if (pick(30) == 0) backend_->RefuseNextDecode();
      Step();
    }
    RunAll();
    size_t n_right = 0;
    for (const auto& [channel, prompts] : open) {
      const EmbeddingAnswer answer = Take(channel);
      if (StatusOf(answer) == 503) continue;  // the model was told to find no room
      ExpectVectors(answer, prompts);
      ++n_right;
    }
    EXPECT_GT(n_right, open.size() / 2);
    for (Handle& stream : streams) EXPECT_TRUE(Look(stream).done());
  }
}

}  // namespace
}  // namespace polykv
