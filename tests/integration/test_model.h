// The model that integration tests run on, and real text to feed it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "llama/llama_backend.h"

namespace polykv {

struct TestModelOptions {
  std::string path = {};  // empty: $POLYKV_TEST_MODEL
  int32_t n_ctx = 1024;
  int32_t n_parallel = 4;
  int32_t n_seq_max = 16;
  int32_t n_batch = 2048;
  int32_t n_ubatch = 512;
  bool unified = true;
  bool swa_full = false;
  bool embedding = false;  // also for the mean vectors of sequences; n_seq_max divides n_ubatch
  // The same weights as 32-bit floats, a float cache and no flash attention: results that hardly
  // depend on what shares a batch or where the cells lie.
  bool precise = false;
  // kFromText: n-grams, 4 tokens after 4. kFromModel: up to 6 tokens by the same model.
  enum class Drafts { kNone, kFromText, kFromModel } drafts = Drafts::kNone;
};

// A model with random weights that tests/peer/tiny_models.py made; `architecture`: "gemma3" (a
// window of 48 tokens), "mamba" (recurrent), "jamba" (hybrid), …
std::string TinyModelPath(const std::string& architecture);

// Gemma 3 270M, which $POLYKV_WINDOW_MODEL names: a window of 512 tokens.
std::string WindowModelPath();

// A model on all cores of this machine; aborts with a message if it cannot
// be loaded. libllama logs errors only from then on.
std::unique_ptr<LlamaBackend> LoadTestModel(const TestModelOptions& options);

// Always the most probable token.
std::unique_ptr<Sampler> MakeGreedySampler(LlamaBackend& backend);

// Documents of the llama.cpp source tree in $LLAMA_CPP_SOURCE_DIR, else in the one that the build
// used: English prose with tables, code and lists. Always in the same order.
std::vector<std::string> LoadDocuments();

// Tokens [begin, begin + count) of the documents one after the other; aborts if there are too few.
std::vector<Token> DocumentTokens(const ModelBackend& backend, size_t begin, size_t count);

}  // namespace polykv
