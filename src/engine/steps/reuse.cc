#include "engine/steps/reuse.h"

#include <algorithm>
#include <span>

#include "engine/steps/materialize.h"

namespace polykv {
namespace {

uint64_t& MissCounter(Counters::MissReasons& miss, const std::string& reason) {
  if (reason == "no_pool") return miss.no_pool;
  if (reason == "evicted") return miss.evicted;
  if (reason == "window") return miss.window;
  if (reason == "recurrent") return miss.recurrent;
  if (reason == "split") return miss.split;
  if (reason == "adapter") return miss.adapter;
  return miss.diverged;
}

// What the sequence itself can contribute, which may be less than it has in common with the prompt.
void FindResume(const EngineState& state, const Generation& generation, const Sequence& sequence,
                Reuse* reuse) {
  if (reuse->match.n_own == 0) return;
  const std::vector<Token>& prompt = generation.request->prompt;
  const int32_t n_common = LongestCommonPrefix(prompt, sequence.tokens);
  reuse->resume = state.cache.FindResume(sequence, n_common, n_common < generation.n_prompt());
  reuse->match.n_own = std::min(reuse->match.n_own, reuse->resume.n_tokens);
}

}  // namespace

const AdapterSet& AdaptersOf(const EngineState& state, const Generation& generation) {
  const std::optional<AdapterSet>& wanted = generation.request->adapters;
  return wanted.has_value() ? *wanted : state.adapters;
}

std::optional<Reuse> ResolvePool(EngineState& state, const Generation& generation) {
  Reuse reuse;
  const AttachSpec& attach = generation.request->attach;
  if (attach.pool.empty()) return reuse;
  reuse.pool = state.pools.FindOrNull(attach.pool);
  if (reuse.pool == nullptr) {
    reuse.miss_reason = "no_pool";
    return reuse;
  }
  reuse.pool->last_access = state.now();
  if (state.backend->info().sharing == Sharing::kOff || generation.session == nullptr) {
    reuse.miss_reason = state.backend->info().sharing_reason;
    reuse.pool = nullptr;
    return reuse;
  }
  if (reuse.pool->adapters != AdaptersOf(state, generation)) {
    reuse.miss_reason = "adapter";
    reuse.pool = nullptr;
    return reuse;
  }
  if (reuse.pool->residency == Residency::kEvicted && RebuildPool(state, reuse.pool)) {
    reuse.miss_reason = "evicted";
    reuse.pool = nullptr;
    return reuse;
  }
  if (reuse.pool->residency == Residency::kMaterializing) return std::nullopt;
  return reuse;
}

void MatchPrompt(const EngineState& state, const Generation& generation, const Sequence& sequence,
                 Reuse* reuse) {
  const GenerationRequest& request = *generation.request;
  const bool reusable = request.cache_prompt && sequence.adapters == AdaptersOf(state, generation);
  const std::span<const Token> own =
      reusable ? std::span<const Token>(sequence.tokens) : std::span<const Token>();
  const std::span<const Token> pool = reuse->pool != nullptr
                                          ? std::span<const Token>(reuse->pool->prefix.tokens)
                                          : std::span<const Token>();
  reuse->match = MatchPrefix(request.prompt, own, pool, request.attach.shared_prefix_n_tokens);
  FindResume(state, generation, sequence, reuse);
}

int32_t TakePrefix(EngineState& state, Sequence& sequence, const Reuse& reuse) {
  state.cache.TakeBack(sequence);
  if (reuse.match.n_pool == 0) return state.cache.Rewind(sequence, reuse.resume, reuse.match.n_own);
  state.cache.Clear(sequence);
  state.cache.Share(sequence, reuse.pool, reuse.match.n_pool);
  return reuse.match.n_pool;
}

void CountReuse(EngineState& state, const Generation& generation, PoolNode* pool,
                int32_t n_reused) {
  Counters& counters = state.counters;
  counters.n_prompt_cached += static_cast<uint64_t>(n_reused);
  const AttachReport& report = generation.report;
  if (!report.miss_reason.empty()) ++MissCounter(counters.miss, report.miss_reason);
  if (generation.request->attach.pool.empty()) return;
  ++counters.pool_queries;
  counters.pool_query_tokens += static_cast<uint64_t>(generation.n_prompt());
  counters.pool_hit_tokens += static_cast<uint64_t>(n_reused);
  if (n_reused > 0) ++counters.pool_hits;
  if (pool == nullptr) return;
  ++pool->queries;
  if (n_reused > 0) ++pool->hits;
}

}  // namespace polykv
