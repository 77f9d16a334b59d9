// Whether sharing does on the loaded model what it should: libllama has memories, and will have
// more, that were never made to be shared.
#pragma once

#include "kv/model_backend.h"

namespace polykv {

class LlamaBackend;

// Computes about a hundred tokens in the first four sequences, once on their own and once behind
// shared cells, the whole of a pool and, unless `sharing` is kAtTip, half of it. False if what
// follows is not the same. REQUIRES: an empty cache; n_seq_max >= 4. The sequences are empty
// afterwards.
bool SharesCorrectly(LlamaBackend& backend, Sharing sharing);

}  // namespace polykv
