// Random operations on the real model: after every step libllama's own cells are what we think that
// each sequence holds, none more and none less, and all of them are free when all is released.
#include <map>
#include <memory>
#include <string>

#include "engine/random_operations.h"
#include "gtest/gtest.h"
#include "integration/real_cells.h"
#include "integration/test_model.h"

namespace polykv {
namespace {

EngineConfig Config() {
  EngineConfig config;
  config.n_parallel = 4;
  config.max_pools = 6;
  config.max_sessions = 5;
  config.n_ctx_plain = 512;
  config.n_ctx_session = 512;
  config.session_hot_ms = 100;
  config.host_bytes = 64 << 20;
  config.prefill_chunk = 24;
  config.share_piece = 16;  // the more shares are under way at a time
  config.share_us = 0;
  config.grace_ms = 200;
  config.session_idle_ms = 2'000;
  return config;
}

struct Case {
  const char* name;
  const char* architecture;  // empty: the default model
  bool unified = true;
  int n_operations = 400;
};

class RandomCellsTest : public testing::TestWithParam<Case> {
 protected:
  void Check() const {
    engine_->CheckIntegrity();
    const RealCells cells = ReadRealCells(*backend_);
    const std::map<SeqId, int32_t> holdings = engine_->Holdings();
    ASSERT_EQ(cells.ownerless, 0);
    const bool recurrent_only = std::string(GetParam().architecture) == "mamba";
    if (!recurrent_only) {
      ASSERT_EQ(cells.used, engine_->Snapshot()->kv_cells_used);
      ASSERT_EQ(cells.positions.size(), holdings.size());
    }
    for (const auto& [seq, n_tokens] : holdings) {
      SCOPED_TRACE(testing::Message() << "sequence " << seq);
      if (!recurrent_only) {
        ASSERT_TRUE(cells.positions.contains(seq));
        ASSERT_EQ(cells.positions.at(seq), PositionsUpTo(n_tokens));
      }
      if (!cells.tips.empty()) {
        ASSERT_TRUE(cells.tips.contains(seq));
        ASSERT_EQ(cells.tips.at(seq), n_tokens - 1);
      }
      if (!cells.window.empty()) {
        ASSERT_TRUE(cells.window.contains(seq));
        ASSERT_EQ(cells.window.at(seq).back(), n_tokens - 1);
      }
    }
  }

  void Build() {
    const EngineConfig config = Config();
    const std::string architecture = GetParam().architecture;
    backend_ = LoadTestModel({.path = architecture.empty() ? "" : TinyModelPath(architecture),
                              .n_ctx = GetParam().unified ? 768 : 512 * config.n_parallel,
                              .n_parallel = config.n_parallel,
                              .n_seq_max = config.n_seq_max(),
                              .n_batch = 128,
                              .n_ubatch = 64,
                              .unified = GetParam().unified});
    engine_ = std::make_unique<Engine>(backend_.get(), &clock_, config);
  }

  ManualClock clock_;
  std::unique_ptr<LlamaBackend> backend_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(RandomCellsTest, EverySequenceHoldsWhatWeThink) {
  Build();
  RandomOperations operations(engine_.get(), &clock_, {.n_predict = 24}, 41,
                              [this] { return MakeGreedySampler(*backend_); });
  size_t n_finished = 0;
  for (int i = 0; i < GetParam().n_operations; ++i) {
    operations.DoSomething();
    engine_->RunOneStep();
    clock_.AdvanceUs(10'000);
    Check();
    if (HasFatalFailure()) FAIL() << "operation " << i;
    for (const auto& open : operations.TakeAnswered()) n_finished += open.finished ? 1 : 0;
  }
  while (engine_->RunOneStep()) {
  }
  operations.TakeAnswered();
  EXPECT_EQ(operations.n_open(), 0U) << "somebody never got an answer";
  EXPECT_GT(n_finished, static_cast<size_t>(GetParam().n_operations / 15));
  for (int i = 0; i < 2; ++i) {  // what was on its way then is released now
    operations.ReleaseAll();
    engine_->RunOneStep();
    clock_.AdvanceUs(300'000);
    engine_->RunOneStep();
    Check();
  }
  const RealCells left = ReadRealCells(*backend_);
  EXPECT_EQ(left.used, 0);
  EXPECT_EQ(left.n_states, 0);
}

constexpr Case kCases[] = {{"default_model", "", true, 60},
                           {"attention", "llama"},
                           {"attention_split", "llama", false},
                           {"window", "gemma3"},
                           {"recurrent", "mamba"},
                           {"hybrid", "jamba"},
                           {"hybrid_split", "jamba", false}};

INSTANTIATE_TEST_SUITE_P(Models, RandomCellsTest, testing::ValuesIn(kCases),
                         [](const auto& test_case) { return std::string(test_case.param.name); });

}  // namespace
}  // namespace polykv
