// Sampler on llama.cpp's common_sampler: every sampler, grammar and penalty that llama-server has.
#pragma once

#include <cstdint>
#include <memory>

#include "common.h"
#include "kv/model_backend.h"
#include "llama/llama_backend.h"

namespace polykv {

// Makes the sampling state of one stream. Thread-safe; `backend` outlives the sampler.
// Fills SampledToken::probability and ::top only if n_probs > 0, as llama-server does: from the raw
// logits, or with `post_sampling_probs` from what the sampler chain left, without zeros (which may
// be fewer than n_probs). `special`: the candidates' texts show special tokens. Throws
// std::exception when the parameters make no sampler (a grammar that does not parse, a penalty out
// of range); its what() is for the client: the caller answers with a 400.
std::unique_ptr<Sampler> MakeLlamaSampler(LlamaBackend& backend, common_params_sampling params,
                                          int32_t n_probs, bool post_sampling_probs, bool special);

}  // namespace polykv
