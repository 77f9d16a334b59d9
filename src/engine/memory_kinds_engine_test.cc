// Attaching on models whose memory cannot be shared anywhere, and in a split cache.
#include <utility>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

const std::string kPrefix = "the shared beginning of all these agents; ";  // 42 bytes = tokens
constexpr int32_t kWindow = 16;

class MemoryKindsTest : public EngineTest {
 protected:
  void BuildWith(FakeBackendOptions options) { Build(DefaultConfig(), std::move(options)); }
  AttachReport Attach(const std::string& prompt, const SessionId& session = "") {
    Handle handle = Submit({.prompt = prompt, .attach = {.pool = "p", .session_id = session}});
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, Alone(prompt));
    return answer.finished->report;
  }
};

TEST_F(MemoryKindsTest, ARecurrentModelSharesWholePools) {
  BuildWith({.n_ctx = 1024, .recurrent = true});
  MakePool(kPrefix, "p");
  for (const char* question : {"one", "two"}) {
    const AttachReport report = Attach(kPrefix + question);
    EXPECT_EQ(report.cache_n, 42);
    EXPECT_EQ(report.miss_reason, "");
  }
}

TEST_F(MemoryKindsTest, ARecurrentModelComputesWhatSharesPartOfAPoolAndSaysWhy) {
  BuildWith({.n_ctx = 1024, .recurrent = true});
  MakePool(kPrefix, "p");
  for (const std::string& prompt : {std::string("the shared beginning of nothing"), kPrefix}) {
    const AttachReport report = Attach(prompt);
    EXPECT_EQ(report.cache_n, 0);
    EXPECT_EQ(report.miss_reason, "recurrent");
  }
  EXPECT_EQ(engine_->Snapshot()->counters.miss.recurrent, 2U);
  EXPECT_EQ(Attach(kPrefix + "again").cache_n, 42) << "the pool is as before";
}

TEST_F(MemoryKindsTest, ASessionThatCannotGoBackStartsFromThePoolAgain) {
  BuildWith({.n_ctx = 1024, .recurrent = true});
  MakePool(kPrefix, "p");
  EXPECT_EQ(Attach(kPrefix + "a question", "s").cache_n, 42);
  EXPECT_EQ(Attach(kPrefix + "a quarrel", "s").cache_n, 42);
}

TEST_F(MemoryKindsTest, AWindowSharesAnyBeginningUntilOthersHaveTakenItsCells) {
  BuildWith({.n_ctx = 1024, .n_swa = kWindow});
  MakePool(kPrefix, "p");
  const AttachReport before = Attach("the shared beginning of nothing");
  EXPECT_EQ(before.cache_n, 24);
  EXPECT_EQ(before.miss_reason, "");
  Handle other = Submit({.prompt = "somebody else"});
  Finish(other);
  const AttachReport after = Attach("the shared beginning of nothing");
  EXPECT_EQ(after.cache_n, 0);
  EXPECT_EQ(after.miss_reason, "window");
  EXPECT_EQ(after.prefix_break_at, 24);
  EXPECT_EQ(engine_->Snapshot()->counters.miss.window, 1U);
  EXPECT_EQ(Attach(kPrefix + "whole").cache_n, 42) << "the end of a pool is never taken";
}

TEST_F(MemoryKindsTest, ASplitCacheSharesByCopies) {
  BuildWith({.n_ctx = 18 * 256, .unified = false});
  EngineConfig config = DefaultConfig();
  config.n_ctx_plain = config.n_ctx_session = 256;
  Build(config, model_);
  MakePool(kPrefix, "p");
  EXPECT_EQ(Attach(kPrefix + "one", "s").cache_n, 42);
  EXPECT_EQ(backend_->CellsUsed(), 42 + 42 + 3 + 15);
  EXPECT_TRUE(engine_->Snapshot()->pools[0].auto_pinned) << "in use, though no cell is shared";
  EXPECT_EQ(Attach("the shared beginning of nothing").cache_n, 24);
  Change(ChangePool::Action::kRelease, "p", /*force=*/true);
  RunAll();
  EXPECT_EQ(backend_->CellsUsed(), 42 + 3 + 15) << "the session's own";
}

}  // namespace
}  // namespace polykv
