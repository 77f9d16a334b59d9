// How the cells and sequences of one boot are shared out, and what each kind of request sees of
// them.
#pragma once

#include <cstdint>
#include <optional>

#include "app/options.h"
#include "base/result.h"
#include "engine/engine.h"
#include "kv/model_backend.h"

namespace polykv {

// What the command line, after llama-server's own adjustments, and the model say of it.
struct LayoutRequest {
  int32_t n_parallel = 4;
  bool kv_unified = true;                   // as llama-server would have it
  bool split_cache = false;                 // one buffer per sequence, also here
  Sharing sharing = Sharing::kAnyPosition;  // of the model
  bool embedding = false;                   // prompts are to be embedded
  int32_t n_ubatch = 512;                   // with embedding
  int32_t n_ctx = 0;                        // with embedding; 0: the model's own
  int32_t per_slot_limit = 0;               // --kv-unified-per-slot; 0: none
};

// Slots, pools, sessions and embedding batches. With plain attention in a unified cache a sequence
// more costs nothing. A window and a recurrent state take memory for each one: unless the options
// say otherwise there are fewer then. In a split cache it costs as much as a slot: there are none.
// A Problem if all need more sequences than llama.cpp has.
Result<EngineConfig> PlanSequences(const LayoutRequest& request, const Options& options);

// Size of the one cache that stands for what llama-server would make of -c `n_ctx` (0: the model's
// own).
int32_t CacheCells(const LayoutRequest& request, int32_t n_ctx);

// A Problem if a cache of `n_cells` cannot be: `memory_bytes`, all that this machine has, does not
// even hold its book-keeping. Keeps the system from killing the process before libllama can say no.
std::optional<Problem> CheckCells(int32_t n_cells, int64_t memory_bytes);

// The context of a request without pool and session: what llama-server would give it. `info` is of
// the loaded model, whose cache may be one where llama-server's would be split.
int32_t PlainContext(const LayoutRequest& request, const ModelInfo& info);

// The context of sessions and of requests with a pool.
int32_t SessionContext(const ModelInfo& info);

}  // namespace polykv
