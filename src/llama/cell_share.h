// Shares in one context's memory, whatever its kind and layout.
#pragma once

#include "base/types.h"
#include "llama.h"

namespace polykv {

// As ModelBackend::ShareRange. False if the range cannot be cut out of a copy: `dst` is then empty.
bool ShareCells(llama_context* context, bool unified, SeqId src, SeqId dst, Pos p0, Pos p1);

// As ModelBackend::CloneSequence.
void CloneCells(llama_context* context, bool unified, SeqId src, SeqId dst);

// As ModelBackend::RemoveRange.
bool RemoveCells(llama_context* context, SeqId seq, Pos p0, Pos p1);

}  // namespace polykv
