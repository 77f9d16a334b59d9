// What a model allows of its tokens' memory to belong to several sequences.
#pragma once

#include "common.h"
#include "kv/model_backend.h"
#include "llama.h"

namespace polykv {

// `swa_full`: the cells that have left a sliding window are kept.
Sharing SharingOf(const llama_model* model, bool swa_full);

// The same of the model that `params` name, without reading its weights. Any position also if it
// cannot be read; loading it will say why.
Sharing ReadSharing(common_params params);

}  // namespace polykv
