// What the next step of the model computes: streams that decode, and a part of the prompts and
// pools that wait.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/state.h"
#include "meter/step_cost.h"

namespace polykv {

// A stretch of the batch that belongs to one stream or one pool.
struct BatchEntry {
  Generation* generation = nullptr;
  Materialization* pool = nullptr;  // exactly one of the two is set
  int32_t n_tokens = 1;
  int32_t output = -1;  // batch index of the first output, the others follow it; -1: none

  bool decodes() const {
    return generation != nullptr && generation->phase == Generation::Phase::kDecode;
  }
  SeqId seq() const { return generation != nullptr ? generation->sequence->id : pool->node->seq; }
  Pos begin() const {  // of its tokens
    return generation != nullptr ? generation->sequence->n_tokens() : pool->node->n_materialized;
  }
  const AdapterSet& adapters() const {
    return generation != nullptr ? generation->sequence->origin.adapters
                                 : pool->node->origin.adapters;
  }
};

using Entries = std::vector<BatchEntry>;

// All of one adapter set, decoding streams first; empty: there is nothing to compute.
Entries PlanStep(EngineState& state);

// Every adapter set that somebody has work for, maybe several times.
std::vector<const AdapterSet*> WantedAdapters(const EngineState& state);

int32_t CountTokens(std::span<const BatchEntry> entries);
StepShape ShapeOf(std::span<const BatchEntry> entries);
StepShape DecodesOf(std::span<const BatchEntry> entries);  // the same of decoding streams alone

}  // namespace polykv
