// The backends to measure on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kv/model_backend.h"
#include "llama/llama_backend.h"

namespace polykv {

struct ModelOptions {
  std::string path;  // GGUF file
  int32_t n_ctx = 0;
  int32_t n_seq_max = 0;
  bool flash_attention = true;
  ggml_type cache_type = GGML_TYPE_F16;
};

// On all cores, in a unified cache; ends the program with a message if it cannot be loaded.
std::unique_ptr<LlamaBackend> LoadModelOrExit(const ModelOptions& options);

// Of a request with default settings.
std::unique_ptr<Sampler> MakeSampler(LlamaBackend& backend);

// Of the same size, without a model.
std::unique_ptr<ModelBackend> MakeFake(const ModelOptions& options);

}  // namespace polykv
