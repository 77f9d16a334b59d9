// Random operations on an engine that is driven by hand: what clients may do, in any order. For
// tests, on any backend.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"

namespace polykv {

class RandomOperations {
 public:
  struct Limits {
    int n_pools = 5;         // names of roots
    int n_sessions = 7;      // names
    int32_t n_predict = 60;  // at most
    int n_slots = 4;
  };
  // A request that may still get an answer, or has got it.
  struct Open {
    std::shared_ptr<GenerationChannel> channel;
    std::string prompt;
    int32_t n_predict = 0;
    int64_t group = 0;  // of the choices of one request
    std::string text;
    std::optional<Finished> finished;
    std::optional<Problem> problem;
    bool done() const { return finished.has_value() || problem.has_value(); }
  };

  // What it is given outlives it.
  RandomOperations(Engine* engine, ManualClock* clock, const Limits& limits, unsigned seed,
                   std::function<std::unique_ptr<Sampler>()> make_sampler)
      : engine_(engine),
        clock_(clock),
        limits_(limits),
        make_sampler_(std::move(make_sampler)),
        random_(seed) {}

  // Every token is a byte's, shifted by one, as the fake backend has it; other models know tokens
  // of these numbers too.
  static std::vector<Token> Tokens(const std::string& text) {
    std::vector<Token> tokens;
    for (const char c : text) tokens.push_back(1 + static_cast<Token>(static_cast<uint8_t>(c)));
    return tokens;
  }

  // Posts one operation, or lets time pass.
  void DoSomething() {
    switch (Pick(14)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Submit();
      case 4:
        return CreateRoot();
      case 5:
        return Fork();
      case 6:
        return TakeSnapshot();
      case 7:
      case 8:
        return ChangeSomePool();
      case 9:
        if (Pick(2) == 0) CancelOne();
        return;
      case 10:
        if (!pools_.empty() && Pick(3) == 0) pools_.back()->Cancel();
        return;
      case 11:
        if (Pick(4) == 0) engine_->Post(EndSessions{.session_id = SomeSession()});
        return;
      default:
        clock_->AdvanceUs(50'000);
    }
  }

  // Those that have got their answer since the last call.
  std::vector<Open> TakeAnswered() {
    std::vector<Open> answered;
    for (auto it = open_.begin(); it != open_.end();) {
      Collect(*it);
      if (it->done()) {
        answered.push_back(std::move(*it));
        it = open_.erase(it);
      } else {
        ++it;
      }
    }
    return answered;
  }
  size_t n_open() const { return open_.size(); }

  // Everything that clients can give back.
  void ReleaseAll() {
    for (const PoolView& pool : engine_->Snapshot()->pools) {
      const std::string name = std::to_string(pool.pool_id);
      engine_->Post(ChangePool{.action = ChangePool::Action::kUnpin, .pool = name});
    }
    const auto pools = engine_->Snapshot()->pools;
    for (auto pool = pools.rbegin(); pool != pools.rend(); ++pool) {
      for (int i = 0; i < pool->refs; ++i) {
        engine_->Post(ChangePool{.action = ChangePool::Action::kRelease,
                                 .pool = std::to_string(pool->pool_id),
                                 .force = true});
      }
    }
    engine_->Post(EndSessions{});
    for (int slot = 0; slot < limits_.n_slots; ++slot) {
      engine_->Post(ChangeSlot{.action = ChangeSlot::Action::kErase, .id_slot = slot});
    }
  }

 private:
  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  std::string SomeSession() { return "session" + std::to_string(Pick(limits_.n_sessions)); }
  static std::string RootName(int i) { return "pool" + std::to_string(i); }
  static std::string Prefix(int i) {
    return std::string(static_cast<size_t>(40 + 30 * i), static_cast<char>('a' + i)) + "|";
  }

  std::optional<PoolView> SomePool() {
    const auto& pools = engine_->Snapshot()->pools;
    if (pools.empty()) return std::nullopt;
    return pools[static_cast<size_t>(Pick(static_cast<int>(pools.size())))];
  }

  void Submit() {
    const int i = Pick(limits_.n_pools);
    AttachSpec attach;
    std::string prompt = Prefix(Pick(4) == 0 ? Pick(limits_.n_pools) : i);
    if (Pick(2) == 0) attach.pool = RootName(i);
    if (!known_.empty() && Pick(3) == 0) {  // on a fork, whose tokens only we know
      const Known& known = known_[static_cast<size_t>(Pick(static_cast<int>(known_.size())))];
      attach.pool = std::to_string(known.pool_id);
      prompt = known.text;
    }
    if (attach.pool.empty() && Pick(6) == 0) attach.shared_pool_slot = Pick(limits_.n_slots);
    if (Pick(2) == 0) attach.session_id = SomeSession();
    attach.session_end = Pick(8) == 0;
    prompt += "own " + std::to_string(Pick(1000));
    ++last_group_;
    auto request = MakeRequest(prompt);
    request->attach = attach;
    request->prompt = Tokens(prompt);
    const int n_choices = Pick(3) == 0 ? 1 + Pick(limits_.n_slots) : 1;
    for (int n = 1; n < n_choices; ++n) request->choices.push_back(MakeRequest(prompt));
    engine_->Post(SubmitGeneration{std::move(request)});
  }

  std::unique_ptr<GenerationRequest> MakeRequest(const std::string& prompt) {
    auto request = std::make_unique<GenerationRequest>();
    request->sampler = make_sampler_();
    request->n_predict = 1 + Pick(limits_.n_predict);
    request->stream = true;
    open_.push_back({.channel = request->channel,
                     .prompt = prompt,
                     .n_predict = request->n_predict,
                     .group = last_group_});
    return request;
  }

  void Create(CreatePool command) {
    command.wait = Pick(2) == 0;
    pools_.push_back(command.channel);
    engine_->Post(std::move(command));
  }

  void CreateRoot() {
    const int i = Pick(limits_.n_pools);
    Create({.tokens = Tokens(Prefix(i)), .name = RootName(i)});
  }

  // What a pool of ours says; only roots and what was forked from them.
  struct Known {
    PoolId pool_id;
    std::string text;
  };
  std::string TextOf(const PoolView& pool) const {
    for (const Known& known : known_) {
      if (known.pool_id == pool.pool_id) return known.text;
    }
    if (!pool.name.starts_with("pool")) return "";
    return Prefix(pool.name.back() - '0');
  }

  void Fork() {
    const auto parent = SomePool();
    if (!parent.has_value()) return;
    const std::string own = "fork" + std::to_string(Pick(5)) + "|";
    const int32_t branch_pos = Pick(2) == 0 ? parent->prefix_len : Pick(parent->prefix_len + 1);
    const std::string text = TextOf(*parent);
    CreatePool command{.parent = std::to_string(parent->pool_id),
                       .branch_pos = branch_pos,
                       .tokens = Tokens(own),
                       .append = true};
    const auto channel = command.channel;
    command.wait = false;
    engine_->Post(std::move(command));
    if (!text.empty()) {
      forks_.push_back({channel, text.substr(0, static_cast<size_t>(branch_pos)) + own});
    }
    LearnForks();
  }

  struct Forked {
    std::shared_ptr<Channel<Result<PoolCreated>>> channel;
    std::string text;
  };
  void LearnForks() {
    for (const Forked& fork : forks_) {
      const auto answer = fork.channel->Next(std::chrono::milliseconds(0));
      if (answer && answer->ok()) known_.push_back({answer->value().pool_id, fork.text});
    }
  }

  void TakeSnapshot() {
    if (Pick(2) == 0) return;
    Create({.from_session = SomeSession()});
  }

  void ChangeSomePool() {
    const auto pool = SomePool();
    if (!pool.has_value()) return;
    using Action = ChangePool::Action;
    constexpr Action kActions[] = {Action::kPin,     Action::kUnpin,  Action::kUnpin,
                                   Action::kEvict,   Action::kFlush,  Action::kRelease,
                                   Action::kRelease, Action::kRelease};
    engine_->Post(ChangePool{.action = kActions[Pick(8)],
                             .pool = std::to_string(pool->pool_id),
                             .subtree = Pick(2) == 0,
                             .force = Pick(2) == 0});
  }

  void CancelOne() {
    if (open_.empty()) return;
    const int64_t group = open_[static_cast<size_t>(Pick(static_cast<int>(open_.size())))].group;
    for (const Open& open : open_) {
      if (open.group == group) open.channel->Cancel();
    }
    std::erase_if(open_, [group](const Open& open) { return open.group == group; });
  }

  static void Collect(Open& open) {
    while (auto message = open.channel->Next(std::chrono::milliseconds(0))) {
      if (auto* piece = std::get_if<Piece>(&message->event)) open.text += piece->text;
      if (auto* finished = std::get_if<Finished>(&message->event)) {
        open.finished = std::move(*finished);
      }
      if (auto* problem = std::get_if<Problem>(&message->event)) {
        open.problem = std::move(*problem);
      }
    }
  }

  Engine* const engine_;
  ManualClock* const clock_;
  const Limits limits_;
  const std::function<std::unique_ptr<Sampler>()> make_sampler_;
  std::mt19937 random_;
  std::vector<Open> open_;
  int64_t last_group_ = 0;
  std::vector<std::shared_ptr<Channel<Result<PoolCreated>>>> pools_;
  std::vector<Forked> forks_;
  std::vector<Known> known_;
};

}  // namespace polykv
