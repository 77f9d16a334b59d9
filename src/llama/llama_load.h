// Loading a model with more sequences than llama-server would give it, and what it turns out to be.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "common.h"
#include "kv/model_backend.h"
#include "llama.h"

namespace polykv {

// The work of LlamaBackend::Load: a model and a context that can generate text (or embed it, with
// params->embedding), or the reason why not. Changes `params` as loading does (sampling defaults,
// LoRA handles); n_parallel comes back as it was.
Result<common_init_result_ptr> LoadModel(common_params* params, int32_t n_seq_max);

// Everything that libllama says about itself; bytes_per_cell is left at 0, since only a decode
// tells.
ModelInfo DescribeModel(const llama_model* model, const llama_context* context,
                        const common_params& params);

}  // namespace polykv
