#include "app/layout.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

ModelInfo Info(int32_t n_ctx, int32_t n_ctx_train) {
  ModelInfo info;
  info.n_ctx = n_ctx;
  info.n_ctx_seq = n_ctx;
  info.n_ctx_train = n_ctx_train;
  return info;
}

TEST(PlanSequencesTest, Defaults) {
  Result<EngineConfig> config = PlanSequences({.n_parallel = 4}, {});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().max_sessions, 8);
  EXPECT_EQ(config.value().n_seq_max(), 4 + 16 + 8 + 2);
}

TEST(PlanSequencesTest, NothingBesidesSlotsTakesNoReserve) {
  Result<EngineConfig> config =
      PlanSequences({.n_parallel = 4}, {.max_pools = 0, .max_sessions = 0, .sessions_given = true});
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config.value().n_seq_max(), 4);
}

TEST(PlanSequencesTest, WhereASequenceTakesMemoryThereAreFewer) {
  for (const Sharing sharing : {Sharing::kWindow, Sharing::kAtTip}) {
    const EngineConfig config = PlanSequences({.n_parallel = 3, .sharing = sharing}, {}).value();
    EXPECT_EQ(config.max_pools, 4);
    EXPECT_EQ(config.max_sessions, 3);
    EXPECT_EQ(config.n_seq_max(), 3 + 4 + 3 + 2);
  }
}

TEST(PlanSequencesTest, ASplitCacheHasPoolsIfAskedFor) {
  const LayoutRequest request = {.n_parallel = 3, .split_cache = true};
  const EngineConfig none = PlanSequences(request, {}).value();
  EXPECT_EQ(none.max_pools, 0);
  EXPECT_EQ(none.max_sessions, 0);
  EXPECT_EQ(none.n_seq_max(), 3);
  const EngineConfig pools = PlanSequences(request, {.max_pools = 2, .pools_given = true}).value();
  EXPECT_EQ(pools.max_pools, 2);
  EXPECT_EQ(pools.max_sessions, 3) << "without sessions nobody could use them";
}

TEST(PlanSequencesTest, WhatIsAskedForIsThereEverywhere) {
  const Options options = {
      .max_pools = 16, .max_sessions = 5, .pools_given = true, .sessions_given = true};
  for (const LayoutRequest& request :
       {LayoutRequest{.sharing = Sharing::kWindow}, LayoutRequest{.sharing = Sharing::kAtTip},
        LayoutRequest{.split_cache = true}}) {
    const EngineConfig config = PlanSequences(request, options).value();
    EXPECT_EQ(config.max_pools, 16);
    EXPECT_EQ(config.max_sessions, 5);
  }
}

TEST(PlanSequencesTest, EmbeddingsMakeTheSequencesADivisorOfTheBatch) {
  const auto n_seq_max = [](const LayoutRequest& request) {
    return PlanSequences(request, {}).value().n_seq_max();
  };
  EXPECT_EQ(n_seq_max({.embedding = true}), 64);  // 30 others, 32 wanted
  EXPECT_EQ(n_seq_max({.embedding = true, .n_ubatch = 300}), 75);
  EXPECT_EQ(n_seq_max({.embedding = true, .n_ubatch = 32}), 32);
  EXPECT_EQ(n_seq_max({.embedding = true, .n_ubatch = 1000, .n_ctx = 512}), 64);
  EXPECT_EQ(n_seq_max({.n_parallel = 4, .split_cache = true, .embedding = true}), 8);
  EXPECT_EQ(PlanSequences({.embedding = true}, {}).value().max_embeds, 34);
}

TEST(PlanSequencesTest, ABatchTooSmallForEmbeddingsIsOneLine) {
  Result<EngineConfig> config = PlanSequences({.embedding = true, .n_ubatch = 16}, {});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.problem().message.find("-ub 16"), std::string::npos);
  EXPECT_EQ(config.problem().message.find('\n'), std::string::npos);
}

TEST(PlanSequencesTest, TooManyIsOneLine) {
  Result<EngineConfig> config = PlanSequences({.n_parallel = 100}, {});
  ASSERT_FALSE(config.ok());
  EXPECT_NE(config.problem().message.find("318 sequences"), std::string::npos);
  EXPECT_EQ(config.problem().message.find('\n'), std::string::npos);
}

TEST(ContextTest, UnifiedShowsTheWholeCacheUpToTraining) {
  const LayoutRequest request = {.n_parallel = 4, .kv_unified = true};
  EXPECT_EQ(PlainContext(request, Info(4096, 8192)), 4096);
  EXPECT_EQ(PlainContext(request, Info(16384, 8192)), 8192);
  EXPECT_EQ(SessionContext(Info(16384, 8192)), 8192);
}

TEST(ContextTest, SlotsOfASplitServerSeeTheirShareOfTheUnifiedCache) {
  const LayoutRequest request = {.n_parallel = 4, .kv_unified = false};
  EXPECT_EQ(PlainContext(request, Info(4096, 8192)), 1024);
  EXPECT_EQ(CacheCells(request, 4352), 5120);  // 1088 each, padded to 256
  EXPECT_EQ(PlainContext(request, Info(5120, 8192)), 1280);
  EXPECT_EQ(CacheCells(request, 0), 0);
  EXPECT_EQ(CacheCells({.n_parallel = 4, .kv_unified = true}, 4352), 4352);
  EXPECT_EQ(SessionContext(Info(4096, 8192)), 4096);
}

TEST(CheckCellsTest, RefusesWhatNoMachineHolds) {
  constexpr int64_t kMemory = int64_t{16} << 30;
  EXPECT_TRUE(CheckCells(2'000'000'000, kMemory).has_value());
  EXPECT_FALSE(CheckCells(1'000'000, kMemory).has_value());
  EXPECT_FALSE(CheckCells(0, kMemory).has_value());
}

TEST(ContextTest, PerSlotLimitCapsPlainRequestsOnly) {
  const LayoutRequest request = {.n_parallel = 4, .kv_unified = true, .per_slot_limit = 512};
  EXPECT_EQ(PlainContext(request, Info(4096, 8192)), 512);
  EXPECT_EQ(SessionContext(Info(4096, 8192)), 4096);
}

TEST(ContextTest, SplitCacheIsWhatLibllamaSays) {
  ModelInfo info = Info(4096, 8192);
  info.unified = false;
  info.n_ctx_seq = 1024;
  EXPECT_EQ(PlainContext({.n_parallel = 4, .kv_unified = false, .split_cache = true}, info), 1024);
  EXPECT_EQ(SessionContext(info), 1024);
}

}  // namespace
}  // namespace polykv
