// What libllama knows of its memory and does not say in llama.h. The one file that includes the
// internal headers of the pinned tree for it. Engine thread; between two decodes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/types.h"
#include "kv/model_backend.h"
#include "llama.h"

namespace polykv {

// ModelBackend::HighestCell.
int32_t HighestCell(llama_memory_t memory);

// ModelBackend::MemoryUses.
std::vector<MemoryUse> MemoryUses(llama_memory_t memory);

// Whether another sequence stands at the recurrent state of `seq`; false if there is none.
bool SharesTip(llama_memory_t memory, SeqId seq);

// Whether the end of `seq` was taken back out of the kept states of its last tokens and nothing was
// computed since: its state then lies where a share would not look.
bool HasPendingRollback(llama_memory_t memory, SeqId seq);

// Copies between the streams of a split cache are noted down only, until the next decode. A state
// that is read or written before it meets the wrong cells. This carries them out.
void CompletePendingCopies(llama_context* context);

}  // namespace polykv
