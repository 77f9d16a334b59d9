// Whether what a model keeps of its tokens can belong to several sequences at once.
#pragma once

#include <string>

#include "common.h"
#include "llama.h"

namespace polykv {

// What speaks against it: "window" or "recurrent"; empty: nothing. `swa_full`: the cells that have
// left a sliding window are kept.
std::string SharingObstacle(const llama_model* model, bool swa_full);

// The same of the model that `params` name, without reading its weights. Empty also if it cannot be
// read; loading it will say why.
std::string ReadSharingObstacle(common_params params);

}  // namespace polykv
