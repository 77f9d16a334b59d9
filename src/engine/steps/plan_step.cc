#include "engine/steps/plan_step.h"

#include <algorithm>
#include <utility>

#include "engine/batch_order.h"
#include "engine/floors.h"
#include "engine/planner.h"
#include "engine/steps/checkpoint.h"
#include "engine/steps/share.h"
#include "engine/throttle.h"

namespace polykv {
namespace {

using Phase = Generation::Phase;

bool Works(const EngineState& state, const Generation& generation) {
  const bool computes = generation.phase == Phase::kDecode || generation.phase == Phase::kPrefill;
  return computes && HasCells(state, generation.sequence->id);
}

bool Works(const EngineState& state, const Materialization& pool) {
  return pool.begun && HasCells(state, pool.node->seq);
}

// A second micro-batch would take from a window what is behind a draft that may be wrong.
int32_t MostInStep(const EngineState& state) {
  const ModelInfo& info = state.backend->info();
  const bool drafts = std::any_of(state.running.begin(), state.running.end(),
                                  [](const auto& other) { return !other->draft().empty(); });
  return drafts && info.n_swa > 0 ? info.n_ubatch : info.n_batch;
}

PrefillLimits Limits(const EngineState& state, int32_t n_decoding, const StepShape& decode) {
  const ModelInfo& info = state.backend->info();
  return {.n_decoding = n_decoding,
          .n_batch = MostInStep(state),
          .n_ubatch = info.n_ubatch,
          .chunk = state.config.prefill_chunk,
          .us_per_token = state.prefill_us_per_token,
          .now = state.now(),
          .room = RoomBeside(state, decode, state.prefill_dues)};
}

PoolId PoolOf(const Generation& generation) {
  return generation.session != nullptr ? generation.session->pool_id : kNoPool;
}

// With --polykv-throttle: those that let the step pass go.
void Throttle(EngineState& state, Entries& entries) {
  if (!state.config.throttle || state.governors.empty()) return;
  const TimeUs now = state.now();
  std::vector<StreamRate> rates;
  for (const BatchEntry& entry : entries) {
    rates.push_back({.slot_id = entry.generation->slot_id,
                     .tps = entry.generation->rate.TokensPerSecond(now),
                     .floor_tps = FloorOf(state, *entry.generation)});
  }
  if (!AnyUnderFloor(rates)) state.under_floor_since = now;
  const std::vector<bool> skips =
      PlanThrottle(rates, state.counters.n_decode, now - state.under_floor_since);
  size_t i = 0;
  std::erase_if(entries, [&](const BatchEntry&) { return skips[i++]; });
}

// Streams that share cells next to each other, else as they were.
void PutSharersTogether(Entries& entries) {
  const auto shares = [](const BatchEntry& entry) {
    return entry.generation->sequence->lease.node() != nullptr;
  };
  if (std::none_of(entries.begin(), entries.end(), shares)) return;
  std::vector<const Sequence*> sequences;
  for (const BatchEntry& entry : entries) sequences.push_back(entry.generation->sequence);
  Entries ordered;
  for (const size_t i : OrderBySharing(sequences)) ordered.push_back(entries[i]);
  entries = std::move(ordered);
}

// Of the streams that decode: those without a pool in the slots' order, as in llama-server.
Entries PlanDecodes(EngineState& state, const AdapterSet& adapters) {
  Entries entries;
  for (const Slot& slot : state.slots) {
    Generation* const generation = slot.running;
    if (generation == nullptr || generation->phase != Phase::kDecode) continue;
    if (!Works(state, *generation) || generation->sequence->origin.adapters != adapters) continue;
    entries.push_back(
        {.generation = generation, .n_tokens = static_cast<int32_t>(generation->next.size())});
  }
  Throttle(state, entries);
  PutSharersTogether(entries);
  return entries;
}

struct Prefills {
  Entries entries;
  std::vector<PrefillJob> jobs;  // parallel
};

Prefills CollectPrefills(EngineState& state, const AdapterSet& adapters) {
  Prefills prefills;
  for (const Slot& slot : state.slots) {
    Generation* const generation = slot.running;
    if (generation == nullptr || generation->phase != Phase::kPrefill) continue;
    if (!Works(state, *generation) || generation->sequence->origin.adapters != adapters) continue;
    prefills.entries.push_back({.generation = generation});
    EnterStretch(state, *generation);
    const Pos begin = generation->sequence->n_tokens();
    prefills.jobs.push_back({.n_left = generation->n_prompt_left(),
                             .n_done = generation->timings.n_prompt_processed,
                             .since = generation->timings.t_queued,
                             .n_to_stop = generation->stretch.end - begin,
                             .begin = begin,
                             .outside = IsOutside(state, PoolOf(*generation))});
  }
  const int32_t n_batch = state.backend->info().n_batch;
  for (Materialization& pool : state.materializing) {
    const PoolNode& node = *pool.node;
    if (!Works(state, pool) || node.origin.adapters != adapters) continue;
    prefills.entries.push_back({.pool = &pool});
    prefills.jobs.push_back({.n_left = node.length() - node.n_materialized,
                             .n_done = node.n_materialized,
                             .since = pool.since,
                             .n_to_stop = n_batch - node.n_materialized % n_batch,
                             .begin = node.n_materialized,
                             .outside = IsOutside(state, node.id)});
  }
  return prefills;
}

// Streams that decode, also those that have to wait for their turn.
int32_t CountStreams(const EngineState& state) {
  return static_cast<int32_t>(
      std::count_if(state.running.begin(), state.running.end(),
                    [](const auto& generation) { return generation->phase == Phase::kDecode; }));
}

}  // namespace

std::vector<const AdapterSet*> WantedAdapters(const EngineState& state) {
  std::vector<const AdapterSet*> wanted;
  for (const auto& generation : state.running) {
    if (Works(state, *generation)) wanted.push_back(&generation->sequence->origin.adapters);
  }
  for (const Materialization& pool : state.materializing) {
    if (Works(state, pool)) wanted.push_back(&pool.node->origin.adapters);
  }
  return wanted;
}

int32_t CountTokens(std::span<const BatchEntry> entries) {
  int32_t n = 0;
  for (const BatchEntry& entry : entries) n += entry.n_tokens;
  return n;
}

StepShape DecodesOf(std::span<const BatchEntry> entries) {
  StepShape shape;
  for (const BatchEntry& entry : entries) {
    if (entry.decodes()) shape.AddDecode(entry.n_tokens, entry.begin());
  }
  return shape;
}

StepShape ShapeOf(std::span<const BatchEntry> entries) {
  StepShape shape = DecodesOf(entries);
  for (const BatchEntry& entry : entries) {
    if (!entry.decodes()) shape.AddPrefill(entry.n_tokens, entry.begin());
  }
  return shape;
}

Entries PlanStep(EngineState& state) {
  const std::vector<const AdapterSet*> wanted = WantedAdapters(state);
  if (wanted.empty()) return {};
  const AdapterSet& adapters = state.adapter_turn.Next(wanted);
  Entries entries = PlanDecodes(state, adapters);
  const Prefills prefills = CollectPrefills(state, adapters);
  if (prefills.jobs.empty()) {
    state.prefill_dues.Reset();
    return entries;
  }
  const int32_t n_decoding = std::max(CountStreams(state), CountTokens(entries));
  std::vector<PrefillShare> shares =
      PlanPrefill(prefills.jobs, Limits(state, n_decoding, DecodesOf(entries)));
  std::sort(shares.begin(), shares.end(),
            [](const PrefillShare& a, const PrefillShare& b) { return a.job < b.job; });
  for (const PrefillShare& share : shares) {
    entries.push_back(prefills.entries[share.job]);
    entries.back().n_tokens = share.n_tokens;
  }
  return entries;
}

}  // namespace polykv
