// A sequence computed in chunks.
#pragma once

#include <cstddef>
#include <span>

#include "integration/distribution.h"
#include "llama/llama_backend.h"

namespace polykv {

// Computes `tokens` of `seq` at positions from `pos` on, at most `chunk` of them at a time; what
// follows each of the last `n_answers` of them.
Answers DecodeInChunks(LlamaBackend& backend, SeqId seq, std::span<const Token> tokens, Pos pos,
                       size_t chunk, size_t n_answers);

}  // namespace polykv
