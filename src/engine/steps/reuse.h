// What a starting request takes over: a pool's prefix or what its sequence holds.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/state.h"
#include "pool/prefix.h"

namespace polykv {

struct Reuse {
  std::shared_ptr<PoolNode> pool;  // null: none that it can share from
  Sequence* other = nullptr;       // in place of a pool: what another slot holds
  PrefixMatch match;
  ResumePoint resume;      // of the own cells
  bool from_host = false;  // which are not in the cache, but in the host store, …
  int32_t n_loaded = 0;    // … and take so many cells
  std::string miss_reason;
};

// That of the cells which the request computes if it starts now.
CellOrigin OriginOf(const EngineState& state, const Generation& generation);

// Finds the request's pool and makes sure that its cells are there or on their way; nothing is
// matched yet. Nothing: the request waits for them.
std::optional<Reuse> ResolvePool(EngineState& state, const Generation& generation);

// Compares the prompt with the pool and with `sequence`, from which the request would go on, or
// with what the host store has of it.
void MatchPrompt(const EngineState& state, const Generation& generation, const Sequence& sequence,
                 Reuse* reuse);

// Takes over the cached prefix; returns its length. What the host store no longer has is matched
// anew without it.
int32_t TakePrefix(EngineState& state, const Generation& generation, Sequence& sequence,
                   Reuse& reuse);

// Counts what `generation`, whose report is written, took over.
void CountReuse(EngineState& state, const Generation& generation, PoolNode* pool, int32_t n_reused);

}  // namespace polykv
