// A whole tile against all rows of some lane vectors.
#pragma once

#include "attention/plan.h"
#include "attention/rows.h"
#include "attention/softmax.h"

namespace polykv::POLYKV_ISA {

// The tile's mask as [cell][row]: what is added to the scores. Rows of tokens that are not computed
// with the whole tile are masked.
inline void SpreadMask(const AttentionCall& call, const Geometry& g, const Block& block,
                       const TileWay& way, int64_t tile, bool biased, const uint64_t* open,
                       float* to) {
  const int64_t stride = g.rows();
  for (int64_t token = 0; token < block.n_tokens; ++token) {
    if ((VectorsOf(token, g) & way.vectors) == 0) continue;
    const uint64_t cells = (way.dense_tokens >> token & 1) != 0 ? open[token] : 0;
    const auto* const mask = reinterpret_cast<const uint16_t*>(
        call.mask + static_cast<size_t>(block.first_token + token) * call.mask_stride);
    for (int64_t i = 0; i < kTile; ++i) {
      float value = -__builtin_inff();
      if ((cells >> i & 1) != 0) value = biased ? HalfToFloat(mask[tile * kTile + i]) * kLog2E : 0;
      float* const rows = to + i * stride + token * g.group;
      for (int64_t member = 0; member < g.group; ++member) rows[member] = value;
    }
  }
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t row = block.n_rows(g); row < stride; ++row) to[i * stride + row] = 0;
  }
}

// One tile of one key head, widened, and what is to be fetched meanwhile.
struct DenseTile {
  const float* queries = nullptr;  // [key_size][rows]
  const float* mask = nullptr;     // [kTile][rows], or none
  TileFetch next_keys;
  TileFetch next_values;
};

// Scores, weights and weighted values for kVectors lane vectors from `vector` on.
template <int kVectors>
void ComputeRun(const AttentionCall& call, const Geometry& g, int64_t n_rows, int64_t vector,
                const Scratch& scratch, const Partial& partial, DenseTile* tile) {
  const int64_t first_row = vector * kLanes;
  for (int64_t cell = 0; cell < kTile; cell += kAccumulatorRows) {
    tile->next_keys.Fetch(kAccumulatorRows);
    MultiplyBlock<kAccumulatorRows, kVectors, kRowStride, 1, false>(
        scratch.keys + cell * kRowStride, tile->queries + first_row, g.rows(), call.key_size,
        scratch.scores + cell * kRunLanes, kRunLanes);
  }
  for (int64_t v = 0; v < kVectors; ++v) {
    Vector maxima = Load(partial.maxima + first_row + v * kLanes);
    for (int64_t cell = 0; cell < kTile; ++cell) {
      float* const at = scratch.scores + cell * kRunLanes + v * kLanes;
      Vector scores = Load(at);
      if (tile->mask != nullptr) {
        scores += Load(tile->mask + cell * g.rows() + first_row + v * kLanes);
        Store(at, scores);
      }
      maxima = Greatest(maxima, scores);
    }
    WeighLanes(scratch.scores + v * kLanes, maxima, partial, first_row + v * kLanes,
               call.value_size);
  }
  const int64_t end = Least<int64_t>(kVectors * kLanes, n_rows - first_row);
  for (int64_t row = 0; row < end; row += kAccumulatorRows) {
    tile->next_values.Fetch(2 * kAccumulatorRows);
    MultiplyRows<kAccumulatorRows, 1, kRunLanes, true>(
        scratch.scores + row, scratch.values, kRowStride, kTile,
        partial.out + (first_row + row) * call.value_size, call.value_size,
        call.value_size / kLanes);
  }
}

// All runs of neighbouring lane vectors among `vectors`.
inline void ComputeVectors(const AttentionCall& call, const Geometry& g, int64_t n_rows,
                           uint64_t vectors, const Scratch& scratch, const Partial& partial,
                           DenseTile* tile) {
  for (int64_t v = 0; v < g.row_vectors;) {
    const int64_t run = FirstBit(~(vectors >> v));
    if (run == 0) {
      ++v;
      continue;
    }
    const int taken = VectorsAtOnce(run);
    if (taken == 3) {
      ComputeRun<kAccumulatorVectors>(call, g, n_rows, v, scratch, partial, tile);
    } else if (taken == 2) {
      ComputeRun<2>(call, g, n_rows, v, scratch, partial, tile);
    } else {
      ComputeRun<1>(call, g, n_rows, v, scratch, partial, tile);
    }
    v += taken;
  }
}

}  // namespace polykv::POLYKV_ISA
