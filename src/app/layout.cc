#include "app/layout.h"

#include <algorithm>
#include <string>

namespace polykv {
namespace {

constexpr int32_t kMaxSequences = 256;  // llama.cpp's limit
constexpr int32_t kCostlyPools = 4;     // where each takes memory even if it is not used
constexpr int32_t kEmbeds = 32;         // prompts in a batch, if possible: short ones fill it then
constexpr int64_t kCellOverhead =
    64;                            // bytes per cell beside keys and values: position, sequence set
constexpr int32_t kPadding = 256;  // libllama rounds the context of a sequence up to it

int32_t RoundUp(int32_t n_ctx) { return (n_ctx + kPadding - 1) / kPadding * kPadding; }

int32_t AtMostTrained(int32_t n_ctx, const ModelInfo& info) {
  return info.n_ctx_train > 0 ? std::min(n_ctx, info.n_ctx_train) : n_ctx;
}

int32_t MaxPools(const LayoutRequest& request, const Options& options) {
  if (options.pools_given) return options.max_pools;
  if (request.split_cache) return 0;
  return request.sharing == Sharing::kAnyPosition ? options.max_pools : kCostlyPools;
}

// Requests with a pool are sessions.
int32_t MaxSessions(const LayoutRequest& request, const Options& options, int32_t max_pools) {
  if (options.sessions_given) return options.max_sessions;
  if (request.split_cache) return max_pools > 0 ? request.n_parallel : 0;
  return request.sharing == Sharing::kAnyPosition ? 2 * request.n_parallel : request.n_parallel;
}

// Sequences for the prompts of an embedding batch beside `n_others`; 0: none can be had. libllama
// reserves a graph in which all sequences are equally long; with mean pooling it aborts if that
// does not come out even (llama-context.cpp, graph_reserve; llama-graph.cpp, build_pooling).
int32_t EmbedSequences(const LayoutRequest& request, int32_t n_others) {
  const int32_t n_cells = RoundUp(CacheCells(request, request.n_ctx));
  const int32_t n_tokens = n_cells > 0 ? std::min(n_cells, request.n_ubatch) : request.n_ubatch;
  const int32_t wanted = request.split_cache ? 1 : kEmbeds;  // each has its own buffer there
  int32_t n_embeds = 0;
  for (int32_t n = n_others + 1; n <= kMaxSequences && n_embeds < wanted; ++n) {
    if (n_tokens % n == 0) n_embeds = n - n_others;
  }
  return n_embeds;
}

Problem NoBatchSize(const LayoutRequest& request, int32_t n_others) {
  return {.status = 400,
          .type = "bad_option",
          .message = "-ub " + std::to_string(request.n_ubatch) + " has no divisor from " +
                     std::to_string(n_others + 1) +
                     " to 256, which embeddings need: change it, or lower -np, "
                     "--polykv-max-pools or --polykv-max-sessions"};
}

}  // namespace

Result<EngineConfig> PlanSequences(const LayoutRequest& request, const Options& options) {
  EngineConfig config;
  config.n_parallel = request.n_parallel;
  config.max_pools = MaxPools(request, options);
  config.max_sessions = MaxSessions(request, options, config.max_pools);
  config.prefill_chunk = options.prefill_chunk;
  config.throttle = options.throttle;
  config.max_waiting = options.max_waiting;
  config.grace_ms = options.grace_ms;
  config.session_idle_ms = options.session_idle_ms;
  config.session_hot_ms = options.session_hot_ms;
  config.park_bytes = int64_t{options.park_mib} << 20;
  if (config.n_seq_max() > kMaxSequences) {
    return Problem{.status = 400,
                   .type = "bad_option",
                   .message = std::to_string(config.n_parallel) + " slots, " +
                              std::to_string(config.max_pools) + " pools and " +
                              std::to_string(config.max_sessions) + " sessions need " +
                              std::to_string(config.n_seq_max()) +
                              " sequences, but llama.cpp has at most " +
                              std::to_string(kMaxSequences) +
                              ": lower -np, --polykv-max-pools or --polykv-max-sessions"};
  }
  if (request.embedding) {
    config.max_embeds = EmbedSequences(request, config.n_seq_max());
    if (config.max_embeds == 0) return NoBatchSize(request, config.n_seq_max());
  }
  return config;
}

int32_t CacheCells(const LayoutRequest& request, int32_t n_ctx) {
  if (n_ctx <= 0 || request.kv_unified || request.split_cache) return n_ctx;
  return RoundUp(RoundUp(n_ctx) / request.n_parallel) * request.n_parallel;
}

std::optional<Problem> CheckCells(int32_t n_cells, int64_t memory_bytes) {
  if (n_cells * kCellOverhead <= memory_bytes) return std::nullopt;
  return Problem{.status = 400,
                 .type = "bad_option",
                 .message = "a context of " + std::to_string(n_cells) +
                            " tokens does not fit into this machine's memory: lower -c"};
}

int32_t PlainContext(const LayoutRequest& request, const ModelInfo& info) {
  int32_t n_ctx = info.n_ctx_seq;
  if (info.unified && !request.kv_unified) {
    n_ctx = std::min(info.n_ctx, RoundUp(info.n_ctx / request.n_parallel));
  }
  if (request.per_slot_limit > 0) n_ctx = std::min(n_ctx, request.per_slot_limit);
  return AtMostTrained(n_ctx, info);
}

int32_t SessionContext(const ModelInfo& info) {
  return AtMostTrained(info.unified ? info.n_ctx : info.n_ctx_seq, info);
}

}  // namespace polykv
