// The chunks' softmaxes become one, and that the result.
#pragma once

#include "attention/plan.h"
#include "attention/rows.h"
#include "attention/softmax.h"

namespace polykv::POLYKV_ISA {

// What each chunk's weighted values count in the result of a lane vector of rows.
struct MergeFactors {
  float of[kMaxChunks][kLanes];
};

inline Vector SinkScores(const AttentionCall& call, const Geometry& g, int64_t kv_head,
                         int64_t first_row) {
  float scores[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) {
    scores[i] = call.sinks[kv_head * g.group + (first_row + i) % g.group] * kLog2E;
  }
  return Load(scores);
}

inline MergeFactors FactorsOf(const AttentionCall& call, const Geometry& g, int64_t kv_head,
                              int64_t first_row, const Partial* chunks) {
  Vector maxima = Splat(kNoScore);
  const Vector sinks = call.sinks != nullptr ? SinkScores(call, g, kv_head, first_row) : maxima;
  maxima = Greatest(maxima, sinks);
  for (int64_t c = 0; c < g.n_chunks; ++c) {
    maxima = Greatest(maxima, Load(chunks[c].maxima + first_row));
  }
  Vector sums = call.sinks != nullptr ? Exp2(sinks - maxima) : Vector{};
  MergeFactors factors;
  for (int64_t c = 0; c < g.n_chunks; ++c) {
    const Vector factor = Exp2(Load(chunks[c].maxima + first_row) - maxima);
    sums += Load(chunks[c].sums + first_row) * factor;
    Store(factors.of[c], factor);
  }
  const Vector inverse = sums > 0.0F ? 1.0F / sums : Vector{};
  for (int64_t c = 0; c < g.n_chunks; ++c) {
    Store(factors.of[c], Load(factors.of[c]) * inverse);
  }
  return factors;
}

inline void MergeRow(const AttentionCall& call, const Geometry& g, const Partial* chunks,
                     const MergeFactors& factors, int64_t first_row, int64_t lane, float* out) {
  const int64_t row = first_row + lane;
  const int64_t size = call.value_size;
  std::memset(out, 0, static_cast<size_t>(size) * sizeof(float));
  for (int64_t c = 0; c < g.n_chunks; ++c) {
    if (chunks[c].sums[row] == 0) continue;  // its values may never have been written
    const float factor = factors.of[c][lane];
    const float* const values = chunks[c].out + row * size;
    for (int64_t d = 0; d < size; d += kLanes) {
      Store(out + d, Load(out + d) + Load(values + d) * factor);
    }
  }
}

// Writes the results of one lane vector of a block's rows.
inline void MergeLanes(const AttentionCall& call, const Geometry& g, const Shared& shared,
                       int64_t block, int64_t kv_head, int64_t vector) {
  Partial chunks[kMaxChunks];
  for (int64_t c = 0; c < g.n_chunks; ++c) {
    chunks[c] = PartialOf(call, g, shared, block, kv_head, c);
  }
  const int64_t first_row = vector * kLanes;
  const MergeFactors factors = FactorsOf(call, g, kv_head, first_row, chunks);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const int64_t row = first_row + lane;
    const int64_t token = block * g.block_tokens + row / g.group;
    if (row >= g.block_tokens * g.group || token >= call.n_tokens) return;
    const int64_t head = kv_head * g.group + row % g.group;
    MergeRow(call, g, chunks, factors, first_row, lane,
             call.out + (token * call.n_heads + head) * call.value_size);
  }
}

}  // namespace polykv::POLYKV_ISA
