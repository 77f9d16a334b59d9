#include "integration/test_model.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "llama/llama_sampler.h"
#include "log.h"

namespace polykv {
namespace {

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::abort();
}

std::string Environment(const char* name, const char* content) {
  const char* value = std::getenv(name);
  if (value == nullptr) Fail(std::string("set ") + name + " to " + content);
  return value;
}

void LogErrors(ggml_log_level level, const char* text, void* /*user_data*/) {
  static bool printing = false;  // a continued line belongs to the one before it
  if (level != GGML_LOG_LEVEL_CONT) printing = level >= GGML_LOG_LEVEL_ERROR;
  if (printing) std::fputs(text, stderr);
}

std::string SourceDir() {
  if (const char* given = std::getenv("LLAMA_CPP_SOURCE_DIR")) return given;
#ifdef POLYKV_LLAMA_SOURCE_DIR
  return POLYKV_LLAMA_SOURCE_DIR;
#else
  Fail("set LLAMA_CPP_SOURCE_DIR to a llama.cpp source tree");
#endif
}

// A copy of the model at `path` with its weights as floats; the caller removes it.
std::string WriteFloatModel(const std::string& path) {
  const std::string copy =
      (std::filesystem::temp_directory_path() / ("polykv-" + std::to_string(getpid()) + ".gguf"))
          .string();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_ALL_F32;
  params.allow_requantize = true;
  if (llama_model_quantize(path.c_str(), copy.c_str(), &params) != 0) Fail("cannot write " + copy);
  return copy;
}

void SetDrafts(TestModelOptions::Drafts drafts, const std::string& path,
               common_params_speculative* params) {
  if (drafts == TestModelOptions::Drafts::kFromText) {
    params->types = {COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE};
    params->ngram_simple.size_n = 4;
    params->ngram_simple.size_m = 4;
  }
  if (drafts == TestModelOptions::Drafts::kFromModel) {
    params->types = {COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE};
    params->draft.mparams.path = path;
    params->draft.n_max = 6;
  }
}

}  // namespace

std::string TinyModelPath(const std::string& architecture) {
  return Environment("POLYKV_TINY_MODELS", "a folder that tests/peer/tiny_models.py wrote") +
         "/tiny-" + architecture + ".gguf";
}

std::string WindowModelPath() {
  return Environment("POLYKV_WINDOW_MODEL", "the GGUF file of Gemma 3 270M");
}

std::unique_ptr<LlamaBackend> LoadTestModel(const TestModelOptions& options) {
  const std::string path =
      options.path.empty() ? Environment("POLYKV_TEST_MODEL", "a GGUF file") : options.path;
  static std::once_flag once;
  std::call_once(once, [] {
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
    llama_log_set(&LogErrors, nullptr);
    llama_backend_init();
  });

  common_params params;
  params.model.path = options.precise ? WriteFloatModel(path) : path;
  const std::string temporary = options.precise ? params.model.path : "";
  params.n_ctx = options.n_ctx;
  params.n_parallel = options.n_parallel;
  params.n_batch = options.n_batch;
  params.n_ubatch = options.n_ubatch;
  params.kv_unified = options.unified;
  params.swa_full = options.swa_full;
  params.embedding = options.embedding;
  if (options.embedding) params.pooling_type = LLAMA_POOLING_TYPE_MEAN;
  params.warmup = false;
  params.fit_params = false;
  SetDrafts(options.drafts, params.model.path, &params.speculative);
  if (options.precise) {
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.cache_type_k = GGML_TYPE_F32;
    params.cache_type_v = GGML_TYPE_F32;
  }
  postprocess_cpu_params(params.cpuparams, nullptr);
  postprocess_cpu_params(params.cpuparams_batch, &params.cpuparams);
  auto backend = LlamaBackend::Load(std::move(params), options.n_seq_max);
  if (!temporary.empty()) std::filesystem::remove(temporary);  // stays mapped
  if (!backend.ok()) Fail(backend.problem().message);
  return std::move(backend.value());
}

std::unique_ptr<Sampler> MakeGreedySampler(LlamaBackend& backend) {
  common_params_sampling params;
  params.temp = 0;
  return MakeLlamaSampler(backend, params, /*n_probs=*/0, /*post_sampling_probs=*/false,
                          /*special=*/false);
}

std::vector<std::string> LoadDocuments() {
  std::vector<std::string> documents;
  for (const char* name : {"LICENSE", "README.md", "CONTRIBUTING.md", "docs/build.md",
                           "docs/speculative.md", "docs/function-calling.md", "docs/docker.md",
                           "tools/server/README-dev.md", "docs/autoparser.md"}) {
    const std::string path = SourceDir() + "/" + name;
    std::ifstream file(path);
    if (!file) Fail("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    documents.push_back(text.str());
  }
  return documents;
}

std::vector<Token> DocumentTokens(const ModelBackend& backend, size_t begin, size_t count) {
  std::vector<Token> tokens;
  for (const std::string& document : LoadDocuments()) {
    if (tokens.size() >= begin + count) break;
    const std::vector<Token> more = backend.Tokenize(document, false, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (tokens.size() < begin + count) Fail("the documents are too short");
  const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace polykv
