// An engine on the fake backend, driven by hand.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine.h"
#include "kv/fake_backend.h"

namespace polykv {

// What came of a request so far.
struct Answer {
  std::string text;  // of the pieces, or of Finished if it was not streamed
  std::optional<Started> started;
  std::optional<Finished> finished;
  std::optional<Problem> problem;
  bool done() const { return finished.has_value() || problem.has_value(); }
};

inline void Collect(GenerationChannel& channel, Answer& answer) {
  while (auto message = channel.Next(std::chrono::milliseconds(0))) {
    if (auto* started = std::get_if<Started>(&message->event)) answer.started = *started;
    if (auto* piece = std::get_if<Piece>(&message->event)) answer.text += piece->text;
    if (auto* finished = std::get_if<Finished>(&message->event)) {
      if (answer.text.empty()) answer.text = finished->text;
      answer.finished = std::move(*finished);
    }
    if (auto* problem = std::get_if<Problem>(&message->event)) answer.problem = std::move(*problem);
  }
}

class EngineTest : public ::testing::Test {
 protected:
  struct Handle {
    std::shared_ptr<GenerationChannel> channel;
    Answer answer = {};
    std::vector<Handle> choices = {};  // the others, of a request for several
  };
  struct Request {
    std::string prompt;
    int32_t n_predict = 16;
    AttachSpec attach = {};
    bool stream = true;
    int n_choices = 1;
    int32_t id_slot = -1;
    std::vector<std::string> stop_words = {};
    std::string reasoning_end = {};  // not empty: with reasoning control, under the prompt as id
  };

  static EngineConfig DefaultConfig() {
    EngineConfig config;
    config.n_parallel = 4;
    config.max_pools = 4;
    config.max_sessions = 8;
    config.n_ctx_plain = 1024;
    config.n_ctx_session = 1024;
    config.first_stretch = 8;
    return config;
  }

  void Build(EngineConfig config, FakeBackendOptions options = {.n_ctx = 1024}) {
    options.clock = &clock_;
    options.n_seq_max = config.n_seq_max();
    model_ = options;
    engine_.reset();
    backend_ = std::make_unique<FakeBackend>(options);
    engine_ = std::make_unique<Engine>(backend_.get(), &clock_, config);
  }
  void SetUp() override { Build(DefaultConfig()); }
  void TearDown() override { Check(); }

  std::vector<Token> Tokens(const std::string& text) const {
    return backend_->Tokenize(text, false, false);
  }

  std::unique_ptr<GenerationRequest> Make(const Request& request) const {
    auto generation = std::make_unique<GenerationRequest>();
    generation->sampler = backend_->MakeSampler(request.reasoning_end);
    generation->completion_id = request.prompt;
    generation->reasoning_control = !request.reasoning_end.empty();
    generation->n_predict = request.n_predict;
    generation->stream = request.stream;
    generation->id_slot = request.id_slot;
    generation->stop_words = request.stop_words;
    return generation;
  }
  Handle Submit(const Request& request) {
    auto generation = Make(request);
    generation->prompt = Tokens(request.prompt);
    generation->attach = request.attach;
    Handle handle{generation->channel};
    for (int i = 1; i < request.n_choices; ++i) {
      generation->choices.push_back(Make(request));
      handle.choices.push_back({generation->choices.back()->channel});
    }
    engine_->Post(SubmitGeneration{std::move(generation)});
    return handle;
  }

  using PoolChannel = std::shared_ptr<Channel<Result<PoolCreated>>>;
  PoolChannel PostPool(const std::string& text, const std::string& name = "", bool wait = true) {
    CreatePool command;
    command.tokens = Tokens(text);
    command.name = name;
    command.wait = wait;
    auto channel = command.channel;
    engine_->Post(std::move(command));
    return channel;
  }
  static std::optional<Result<PoolCreated>> Take(const PoolChannel& channel) {
    return channel->Next(std::chrono::milliseconds(0));
  }
  PoolCreated MakePool(const std::string& text, const std::string& name = "") {
    const PoolChannel channel = PostPool(text, name);
    RunAll();
    auto result = Take(channel);
    EXPECT_TRUE(result.has_value() && result->ok());
    return result->value();
  }
  PoolStatus Change(ChangePool::Action action, const std::string& pool, bool force = false) {
    ChangePool command{.action = action, .pool = pool, .force = force};
    auto channel = command.channel;
    engine_->Post(std::move(command));
    engine_->RunOneStep();
    return channel->Next(std::chrono::milliseconds(0))->value();
  }

  void Step(int n = 1) {
    for (int i = 0; i < n; ++i) {
      engine_->RunOneStep();
      Check();
    }
  }
  void RunAll() {
    for (int i = 0; i < 20'000 && engine_->RunOneStep(); ++i) Check();
    engine_->RunOneStep();
  }
  Answer& Finish(Handle& handle) {
    RunAll();
    Collect(*handle.channel, handle.answer);
    EXPECT_TRUE(handle.answer.done());
    return handle.answer;
  }
  static void Cancel(Handle& handle) {
    handle.channel->Cancel();
    for (Handle& choice : handle.choices) choice.channel->Cancel();
  }
  Answer& Look(Handle& handle) {
    Collect(*handle.channel, handle.answer);
    return handle.answer;
  }

  // The accounting against the model's real cells, and every count against a recount.
  void Check() const {
    engine_->CheckIntegrity();
    ASSERT_EQ(engine_->Snapshot()->kv_cells_used, backend_->CellsUsed());
  }

  // What the request gives on an engine of its own.
  std::string Alone(const std::string& prompt, int32_t n_predict = 16) const {
    EngineTestAlone alone;
    return alone.Run({.n_ctx = 1536, .n_swa = model_.n_swa, .recurrent = model_.recurrent}, prompt,
                     n_predict);
  }

  ManualClock clock_;
  FakeBackendOptions model_;
  std::unique_ptr<FakeBackend> backend_;
  std::unique_ptr<Engine> engine_;

 private:
  struct EngineTestAlone {
    std::string Run(const FakeBackendOptions& options, const std::string& prompt,
                    int32_t n_predict) {
      FakeBackend backend(options);
      EngineConfig config = DefaultConfig();
      config.n_ctx_plain = 1536;
      Engine engine(&backend, &clock, config);
      auto request = std::make_unique<GenerationRequest>();
      request->prompt = backend.Tokenize(prompt, false, false);
      request->sampler = backend.MakeSampler();
      request->n_predict = n_predict;
      const auto channel = request->channel;
      engine.Post(SubmitGeneration{std::move(request)});
      while (engine.RunOneStep()) {
      }
      Answer answer;
      Collect(*channel, answer);
      return answer.text;
    }
    ManualClock clock;
  };
};

}  // namespace polykv
