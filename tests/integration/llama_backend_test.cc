// What LlamaBackend says about a model, and what it says when there is none.
#include "llama/llama_backend.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "integration/real_cells.h"
#include "integration/test_model.h"
#include "llama-kv-cache.h"

namespace polykv {
namespace {

TEST(LlamaBackendTest, InfoIsWhatTheContextHas) {
  const auto backend = LoadTestModel(
      {.n_ctx = 1000, .n_parallel = 2, .n_seq_max = 9, .n_batch = 128, .n_ubatch = 64});
  const ModelInfo& info = backend->info();
  EXPECT_EQ(info.n_ctx, 1024);  // libllama rounds up to 256
  EXPECT_EQ(info.n_ctx_seq, 1024);
  EXPECT_EQ(info.n_seq_max, 9);
  EXPECT_EQ(info.n_batch, 128);
  EXPECT_EQ(info.n_ubatch, 64);
  EXPECT_TRUE(info.unified);
  EXPECT_EQ(info.sharing, Sharing::kAnyPosition);
  EXPECT_EQ(info.n_swa, 0);
  EXPECT_EQ(backend->params().n_parallel, 2);
  EXPECT_TRUE(backend->info().removes_ends);
  EXPECT_FALSE(backend->logit_bias_eog().empty());
  EXPECT_EQ(ReadRealCells(*backend).used, 0) << "loading leaves no cells behind";
}

TEST(LlamaBackendTest, BytesPerCellTimesCellsIsTheCache) {
  const auto backend = LoadTestModel({.n_ctx = 512});
  const auto* cache = dynamic_cast<const llama_kv_cache*>(llama_get_memory(backend->context()));
  size_t n_bytes = 0;
  for (const auto& [type, size] : cache->memory_breakdown()) n_bytes += size;
  EXPECT_EQ(static_cast<size_t>(backend->info().bytes_per_cell) * 512, n_bytes);
}

TEST(LlamaBackendTest, ASplitCacheKeepsTheContextOfEachSequence) {
  const auto backend =
      LoadTestModel({.n_ctx = 1024, .n_parallel = 2, .n_seq_max = 3, .unified = false});
  const ModelInfo& info = backend->info();
  EXPECT_EQ(info.n_ctx_seq, 512);  // 1024 / 2
  EXPECT_EQ(info.n_ctx, 3 * 512);
  EXPECT_FALSE(info.unified);
  EXPECT_EQ(info.sharing, Sharing::kAnyPosition);
  EXPECT_EQ(info.reserve_bytes, info.bytes_per_cell * 512);
  EXPECT_EQ(info.bytes_per_sequence, info.bytes_per_cell * 512);
}

TEST(LlamaBackendTest, CountsTheOperationsOfADecodeAsTheyGo) {
  const auto backend = LoadTestModel({.n_ctx = 256});
  const uint64_t before = backend->n_operations();
  ASSERT_EQ(backend->Decode({{.token = 0, .pos = 0, .seq = 0, .output = true}}), DecodeStatus::kOk);
  const uint64_t per_layer = (backend->n_operations() - before) /
                             static_cast<uint64_t>(llama_model_n_layer(backend->model()));
  EXPECT_GE(per_layer, 5U) << "attention and feed-forward alone have more";
}

TEST(LlamaBackendTest, PositionsThatDoNotContinueAreRefusedAndChangeNothing) {
  const auto backend = LoadTestModel({.n_ctx = 256});
  const std::vector<Token> text = DocumentTokens(*backend, 0, 3);
  ASSERT_EQ(backend->Decode({{text[0], 0, 0, false}, {text[1], 1, 0, true}}), DecodeStatus::kOk);
  EXPECT_EQ(backend->Decode({{text[2], 3, 0, true}}), DecodeStatus::kFailed) << "a hole";
  EXPECT_EQ(backend->Decode({{text[2], 1, 0, true}}), DecodeStatus::kFailed) << "twice";
  EXPECT_EQ(ReadRealCells(*backend).positions.at(0), PositionsUpTo(2));
  EXPECT_EQ(backend->Decode({{text[2], 2, 0, true}}), DecodeStatus::kOk);
}

class LoadFailureTest : public testing::Test {
 protected:
  static std::string MessageOf(common_params params, int32_t n_seq_max) {
    params.warmup = false;
    params.fit_params = false;
    const auto backend = LlamaBackend::Load(std::move(params), n_seq_max);
    return backend.ok() ? "" : backend.problem().message;
  }
  static common_params ParamsOf(const std::string& path) {
    common_params params;
    params.model.path = path;
    params.n_ctx = 256;
    params.n_parallel = 1;
    params.kv_unified = true;
    return params;
  }
  static void ExpectOneLine(const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
};

TEST_F(LoadFailureTest, NoModelGiven) {
  ExpectOneLine(MessageOf(ParamsOf(""), 4), "no model given");
}

TEST_F(LoadFailureTest, MissingFile) {
  ExpectOneLine(MessageOf(ParamsOf("/no/such/model.gguf"), 4),
                "cannot open model file '/no/such/model.gguf': No such file or directory");
}

TEST_F(LoadFailureTest, NotAModel) {
  const std::string path =
      (std::filesystem::path(testing::TempDir()) / "not-a-model.gguf").string();
  std::ofstream(path) << "GGUF, but nothing else";
  ExpectOneLine(MessageOf(ParamsOf(path), 4), "cannot load model");
  std::filesystem::remove(path);
}

TEST_F(LoadFailureTest, MoreSequencesThanLlamaCppHas) {
  ExpectOneLine(MessageOf(ParamsOf("/no/such/model.gguf"), 257), "at most 256");
}

TEST_F(LoadFailureTest, SplitCacheWithoutContextSize) {
  common_params params = ParamsOf("/no/such/model.gguf");
  params.kv_unified = false;
  params.n_ctx = 0;
  ExpectOneLine(MessageOf(params, 4), "use -c N");
}

TEST_F(LoadFailureTest, ContextThatNoMachineHolds) {
  common_params params = ParamsOf(std::getenv("POLYKV_TEST_MODEL"));
  params.n_ctx = 2'000'000'000;
  ExpectOneLine(MessageOf(params, 4), "a context of 2000000000 tokens does not fit in memory");
}

TEST_F(LoadFailureTest, AQuantizedValueCacheWithoutFlashAttention) {
  LoadTestModel({.n_ctx = 256});  // for its quiet log
  common_params params = ParamsOf(std::getenv("POLYKV_TEST_MODEL"));
  params.cache_type_v = GGML_TYPE_Q8_0;  // needs flash attention
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  ExpectOneLine(MessageOf(params, 4), "a V cache of type q8_0 needs flash attention");
}

TEST_F(LoadFailureTest, CacheTypeThatDoesNotFitTheHeads) {
  LoadTestModel({.n_ctx = 256});                            // for its quiet log
  common_params params = ParamsOf(TinyModelPath("llama"));  // heads of 16
  params.cache_type_k = GGML_TYPE_Q8_0;
  ExpectOneLine(MessageOf(params, 4), "blocks of the cache type q8_0");
}

}  // namespace
}  // namespace polykv
