// Random operations on the real model: after every step libllama's own cells are what we think that
// each sequence holds, none more and none less, and all of them are free when all is released.
#include <algorithm>
#include <memory>

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
  config.prefill_chunk = 24;
  config.grace_ms = 200;
  config.session_idle_ms = 2'000;
  return config;
}

void CheckCells(const LlamaBackend& backend, const Engine& engine) {
  engine.CheckIntegrity();
  const RealCells cells = ReadRealCells(backend);
  ASSERT_EQ(cells.ownerless, 0);
  ASSERT_EQ(cells.used, engine.Snapshot()->kv_cells_used);
  const std::map<SeqId, int32_t> holdings = engine.Holdings();
  ASSERT_EQ(cells.positions.size(), holdings.size());
  for (const auto& [seq, n_tokens] : holdings) {
    const auto held = cells.positions.find(seq);
    ASSERT_NE(held, cells.positions.end()) << "sequence " << seq;
    ASSERT_EQ(held->second, PositionsUpTo(n_tokens)) << "sequence " << seq;
  }
}

class RandomCellsTest : public testing::TestWithParam<unsigned> {};

TEST_P(RandomCellsTest, EverySequenceHoldsWhatWeThink) {
  const auto backend = LoadTestModel({.n_ctx = 768,
                                      .n_parallel = Config().n_parallel,
                                      .n_seq_max = Config().n_seq_max(),
                                      .n_batch = 128,
                                      .n_ubatch = 64});
  ManualClock clock;
  Engine engine(backend.get(), &clock, Config());
  RandomOperations operations(&engine, &clock, {.n_predict = 24}, GetParam(),
                              [&backend] { return MakeGreedySampler(*backend); });
  size_t n_finished = 0;
  for (int i = 0; i < 250; ++i) {
    operations.DoSomething();
    engine.RunOneStep();
    clock.AdvanceUs(10'000);
    CheckCells(*backend, engine);
    if (HasFatalFailure()) FAIL() << "operation " << i;
    for (const auto& open : operations.TakeAnswered()) n_finished += open.finished ? 1 : 0;
  }
  while (engine.RunOneStep()) {
  }
  operations.TakeAnswered();
  EXPECT_EQ(operations.n_open(), 0U) << "somebody never got an answer";
  EXPECT_GT(n_finished, 20U);
  for (int i = 0; i < 2; ++i) {  // what was on its way then is released now
    operations.ReleaseAll();
    engine.RunOneStep();
    clock.AdvanceUs(300'000);
    engine.RunOneStep();
    CheckCells(*backend, engine);
  }
  EXPECT_EQ(ReadRealCells(*backend).used, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomCellsTest, testing::Values(41U, 42U));

}  // namespace
}  // namespace polykv
