#include "engine/steps/reuse.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/steps/idle_tier.h"
#include "engine/steps/materialize.h"

namespace polykv {
namespace {

uint64_t& MissCounter(Counters::MissReasons& miss, const std::string& reason) {
  if (reason == "no_pool") return miss.no_pool;
  if (reason == "evicted") return miss.evicted;
  if (reason == "window") return miss.window;
  if (reason == "recurrent") return miss.recurrent;
  if (reason == "self_test") return miss.self_test;
  if (reason == "adapter") return miss.adapter;
  return miss.diverged;
}

// What `own`, a Sequence or a SavedSequence, can contribute to the prompt, which may be less than
// they have in common.
template <typename Own>
std::span<const Token> OwnPrefix(const EngineState& state, const Generation& generation,
                                 const Own& own, ResumePoint* resume) {
  const GenerationRequest& request = *generation.request;
  if (!request.cache_prompt || own.origin != OriginOf(state, generation)) return {};
  const int32_t n_common = LongestCommonPrefix(request.prompt, own.tokens);
  *resume = state.cache.FindResume(own, n_common, n_common < generation.n_prompt());
  return std::span(own.tokens).first(static_cast<size_t>(std::min(n_common, resume->n_tokens)));
}

// What a request shares from.
struct SharedSource {
  SeqId seq = kNoSeq;
  std::span<const Token> tokens;
};

SharedSource SourceOf(const Reuse& reuse) {
  if (reuse.pool != nullptr) return {reuse.pool->seq, reuse.pool->prefix.tokens};
  if (reuse.other != nullptr) return {reuse.other->id, reuse.other->tokens};
  return {};
}

// What the slot that the request names holds now.
Reuse ResolveSlot(EngineState& state, const Generation& generation) {
  Reuse reuse;
  const ModelInfo& info = state.backend->info();
  Slot& slot = state.slots[static_cast<size_t>(*generation.request->attach.shared_pool_slot)];
  Sequence* const other = slot.running != nullptr ? slot.running->sequence : &slot.own;
  if (info.sharing == Sharing::kOff || generation.session == nullptr) {
    reuse.miss_reason = info.sharing_reason;
  } else if (other->tokens.empty() || other->origin.tenant != generation.request->tenant) {
    reuse.miss_reason = "evicted";
  } else if (other->origin != OriginOf(state, generation)) {
    reuse.miss_reason = "adapter";
  } else if (other != &generation.session->sequence) {
    reuse.other = other;
  }
  return reuse;
}

template <typename Own>
void Match(const EngineState& state, const Generation& generation, const Own& holder,
           Reuse* reuse) {
  const GenerationRequest& request = *generation.request;
  reuse->resume = {};
  const std::span<const Token> own = OwnPrefix(state, generation, holder, &reuse->resume);
  const SharedSource source = SourceOf(*reuse);
  reuse->match =
      MatchPrefix(request.prompt, own, source.tokens, request.attach.shared_prefix_n_tokens);
  if (reuse->match.n_pool == 0) return;
  const ShareVerdict verdict =
      state.cache.MayShare(source.seq, static_cast<Pos>(source.tokens.size()), reuse->match.n_pool,
                           /*tokens_remain=*/true);
  if (verdict.length > 0) return;
  reuse->miss_reason = verdict.reason;
  reuse->match.n_pool = 0;
  reuse->match.n_own = MatchPrefix(request.prompt, own, {}, std::nullopt).n_own;
}

}  // namespace

CellOrigin OriginOf(const EngineState& state, const Generation& generation) {
  const GenerationRequest& request = *generation.request;
  return {request.adapters.value_or(state.adapters), request.tenant};
}

std::optional<Reuse> ResolvePool(EngineState& state, const Generation& generation) {
  Reuse reuse;
  const AttachSpec& attach = generation.request->attach;
  if (attach.shared_pool_slot.has_value()) return ResolveSlot(state, generation);
  if (attach.pool.empty()) return reuse;
  reuse.pool = state.pools.FindOrNull(generation.request->tenant, attach.pool);
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
  if (reuse.pool->origin != OriginOf(state, generation)) {
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
  const Session* session = generation.session.get();
  const SavedSequence* saved =
      session != nullptr ? SavedOfOrNull(state, *session, reuse->pool.get()) : nullptr;
  Reuse with_saved = *reuse;
  if (saved != nullptr) Match(state, generation, *saved, &with_saved);
  const bool shares = saved != nullptr && SharesWith(state, sequence, *saved, reuse->pool.get());
  if (saved != nullptr && with_saved.match.n_own > (shares ? saved->begin : 0)) {
    *reuse = std::move(with_saved);
    reuse->from_host = true;
    reuse->n_loaded = saved->n_cells(shares);
    return;
  }
  reuse->from_host = false;
  reuse->n_loaded = 0;
  Match(state, generation, sequence, reuse);
  const bool lost = session != nullptr && session->cooled && saved == nullptr;
  const bool with_pool = !generation.request->attach.pool.empty();
  if (lost && with_pool && reuse->miss_reason.empty()) reuse->miss_reason = "evicted";
}

int32_t TakePrefix(EngineState& state, const Generation& generation, Sequence& sequence,
                   Reuse& reuse) {
  if (reuse.from_host && !WarmSession(state, *generation.session, reuse.pool)) {
    MatchPrompt(state, generation, sequence, &reuse);
  }
  state.cache.TakeBack(sequence);
  if (reuse.match.n_pool == 0) return state.cache.Rewind(sequence, reuse.resume, reuse.match.n_own);
  state.cache.Clear(sequence);
  if (reuse.other != nullptr) {
    state.cache.ShareFrom(*reuse.other, sequence, reuse.match.n_pool);
  } else {
    state.cache.Share(sequence, reuse.pool, reuse.match.n_pool);
  }
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
