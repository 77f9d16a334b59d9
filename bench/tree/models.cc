#include "tree/models.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "kv/fake_backend.h"
#include "llama/llama_sampler.h"
#include "log.h"

namespace polykv {
namespace {

void LogErrors(ggml_log_level level, const char* text, void* /*user_data*/) {
  if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

}  // namespace

std::unique_ptr<LlamaBackend> LoadModelOrExit(const ModelOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] {
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
    llama_log_set(&LogErrors, nullptr);
    llama_backend_init();
  });
  common_params params;
  params.model.path = options.path;
  params.n_ctx = options.n_ctx;
  params.kv_unified = true;
  params.warmup = false;
  params.cache_type_k = options.cache_type;
  params.cache_type_v = options.cache_type;
  params.fit_params = false;
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  postprocess_cpu_params(params.cpuparams, nullptr);
  postprocess_cpu_params(params.cpuparams_batch, &params.cpuparams);
  auto backend = LlamaBackend::Load(std::move(params), options.n_seq_max);
  if (!backend.ok()) {
    std::fprintf(stderr, "%s\n", backend.problem().message.c_str());
    std::exit(1);
  }
  return std::move(backend.value());
}

std::unique_ptr<Sampler> MakeSampler(LlamaBackend& backend) {
  common_params_sampling params = backend.params().sampling;
  params.logit_bias = backend.logit_bias_eog();
  return MakeLlamaSampler(backend, params, /*n_probs=*/0, /*post_sampling_probs=*/false,
                          /*special=*/false);
}

std::unique_ptr<ModelBackend> MakeFake(const ModelOptions& options) {
  return std::make_unique<FakeBackend>(
      FakeBackendOptions{.n_ctx = options.n_ctx, .n_seq_max = options.n_seq_max});
}

}  // namespace polykv
