// Random operations with fixed seeds: whatever clients do, cells are counted right, every answer is
// a prefix of what the request gives alone, and nothing is left when all is released.
#include <random>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class RandomEngineTest : public EngineTest {
 protected:
  struct Open {
    Handle handle;
    std::string prompt;
    int32_t n_predict;
  };

  void SetUp() override { SetUp(0); }
  void SetUp(int32_t n_draft) {
    EngineConfig config = DefaultConfig();
    config.max_pools = 3;
    config.max_sessions = 5;
    config.n_ctx_plain = 600;
    config.n_ctx_session = 600;
    config.prefill_chunk = 24;
    config.grace_ms = 200;
    config.session_idle_ms = 2'000;
    Build(config,
          {.n_ctx = 700, .n_batch = 128, .n_ubatch = 48, .n_draft = n_draft, .wrong_every = 4});
  }

  int Pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  static std::string Prefix(int i) {
    return std::string(static_cast<size_t>(40 + 30 * i), static_cast<char>('a' + i)) + "|";
  }

  void SubmitSomething() {
    const int i = Pick(5);
    Open open;
    open.n_predict = 1 + Pick(60);
    AttachSpec attach;
    if (Pick(2) == 0) attach.pool = "pool" + std::to_string(i);
    if (Pick(2) == 0) attach.session_id = "session" + std::to_string(Pick(7));
    attach.session_end = Pick(8) == 0;
    open.prompt = Prefix(Pick(4) == 0 ? Pick(5) : i) + "own " + std::to_string(Pick(1000));
    open.handle = Submit({.prompt = open.prompt,
                          .n_predict = open.n_predict,
                          .attach = attach,
                          .n_choices = Pick(3) == 0 ? 1 + Pick(4) : 1});
    open_.push_back(std::move(open));
  }

  void ChangeSomePool() {
    const std::string pool = "pool" + std::to_string(Pick(5));
    constexpr ChangePool::Action kActions[] = {ChangePool::Action::kPin, ChangePool::Action::kUnpin,
                                               ChangePool::Action::kUnpin,
                                               ChangePool::Action::kRelease};
    engine_->Post(ChangePool{.action = kActions[Pick(4)], .pool = pool, .force = Pick(3) == 0});
  }

  void DoSomething() {
    switch (Pick(10)) {
      case 0:
      case 1:
      case 2:
        return SubmitSomething();
      case 3: {
        const int i = Pick(5);
        pools_.push_back(PostPool(Prefix(i), "pool" + std::to_string(i), Pick(2) == 0));
        return;
      }
      case 4:
        return ChangeSomePool();
      case 5:
        if (!open_.empty() && Pick(2) == 0) {
          const size_t index = static_cast<size_t>(Pick(static_cast<int>(open_.size())));
          Cancel(open_[index].handle);
          open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(index));
        }
        return;
      case 6:
        if (!pools_.empty() && Pick(3) == 0) pools_.back()->Cancel();
        return;
      case 7:
        if (Pick(4) == 0) {
          engine_->Post(EndSessions{.session_id = "session" + std::to_string(Pick(7))});
        }
        return;
      case 8:
        if (Pick(20) == 0) backend_->RefuseNextDecode();
        return;
      default:
        clock_.AdvanceUs(50'000);
    }
  }

  void CheckAnswer(const Open& open, const Answer& answer) {
    if (answer.finished.has_value()) {
      ++n_finished_;
      n_shared_ += answer.finished->report.pool_id != kNoPool ? 1 : 0;
      const std::string alone = Alone(open.prompt, open.n_predict);
      ASSERT_EQ(answer.text, alone.substr(0, answer.text.size()));
      ASSERT_TRUE(answer.finished->truncated || answer.text.size() == alone.size());
    } else {
      ASSERT_TRUE(answer.problem->status == 503 || answer.problem->status == 410)
          << answer.problem->message;
    }
  }

  void CheckAnswers() {
    for (auto it = open_.begin(); it != open_.end();) {
      bool done = Look(it->handle).done();
      for (Handle& choice : it->handle.choices) done &= Look(choice).done();
      if (!done) {
        ++it;
        continue;
      }
      CheckAnswer(*it, it->handle.answer);
      for (Handle& choice : it->handle.choices) CheckAnswer(*it, choice.answer);
      n_choices_ += static_cast<int>(it->handle.choices.size());
      it = open_.erase(it);
    }
  }

  std::mt19937 random_;
  std::vector<Open> open_;
  std::vector<PoolChannel> pools_;
  int n_finished_ = 0;
  int n_shared_ = 0;
  int n_choices_ = 0;  // besides each request's first
};

TEST_F(RandomEngineTest, ThousandsOfOperationsLeaveNothingBehind) {
  for (const unsigned seed : {301U, 302U, 303U}) {
    SetUp(seed == 303U ? 5 : 0);
    open_.clear();
    pools_.clear();
    random_.seed(seed);
    for (int i = 0; i < 1000; ++i) {
      DoSomething();
      Step();
      CheckAnswers();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", operation " << i;
    }
    RunAll();
    CheckAnswers();
    EXPECT_TRUE(open_.empty()) << "somebody never got an answer";
    for (int i = 0; i < 5; ++i) {
      engine_->Post(
          ChangePool{.action = ChangePool::Action::kUnpin, .pool = "pool" + std::to_string(i)});
      for (int n = 0; n < 100; ++n) {
        engine_->Post(
            ChangePool{.action = ChangePool::Action::kRelease, .pool = "pool" + std::to_string(i)});
      }
    }
    engine_->Post(EndSessions{});
    Step();
    clock_.AdvanceUs(300'000);
    Step();
    Handle all = Submit({.prompt = std::string(599, 'z'), .n_predict = 1});
    Finish(all);
    all = Submit({.prompt = std::string(1, 'y'), .n_predict = 100});
    EXPECT_TRUE(engine_->Snapshot()->pools.empty());
    EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
    EXPECT_EQ(engine_->Snapshot()->seq_ids_used, 4);
    RunAll();
  }
  EXPECT_GT(n_finished_, 300);
  EXPECT_GT(n_shared_, 100);
  EXPECT_GT(n_choices_, 100);
}

}  // namespace
}  // namespace polykv
