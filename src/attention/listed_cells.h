// Cells that few tokens see, token by token.
#pragma once

#include "attention/plan.h"
#include "attention/rows.h"
#include "attention/softmax.h"

namespace polykv::POLYKV_ISA {

// Up to a tile's worth of cells that one token sees, from any tiles.
struct CellList {
  int64_t token = 0;  // of the block
  int64_t n = 0;
  int32_t cells[kTile];
};

// Asks for the list's rows of the heads [first, last), so that they come while others are computed.
inline void FetchList(const AttentionRows& rows, const CellList& list, int64_t first,
                      int64_t last) {
  for (int64_t i = 0; i < list.n; ++i) {
    for (int64_t head = first; head < last; ++head) {
      const std::byte* const row = rows.Row(list.cells[i], head);
      for (size_t at = 0; at < rows.row_bytes; at += Carver::kLine) {
        __builtin_prefetch(row + at, 0, 2);
      }
    }
  }
}

// kHeads of the group's rows, from `row` on, over the widened cells of a list.
template <int kHeads>
void ComputeHeads(const AttentionCall& call, const CellList& list, const uint16_t* bias,
                  const float* queries, int64_t row, const Scratch& scratch,
                  const Partial& partial) {
  DotRows<kHeads>(queries, scratch.keys, call.key_size, list.n, scratch.scores);
  for (int64_t g = 0; g < kHeads; ++g) {
    float* const scores = scratch.scores + g * kTile;
    if (bias != nullptr) {
      for (int64_t i = 0; i < list.n; ++i) scores[i] += HalfToFloat(bias[list.cells[i]]) * kLog2E;
    }
    WeighList(scores, list.n, partial, row + g, call.value_size);
  }
  MultiplyRows<kHeads, kTile, 1, true>(scratch.scores, scratch.values, kRowStride, list.n,
                                       partial.out + row * call.value_size, call.value_size,
                                       call.value_size / kLanes);
}

// `token` is the list's in the call; `bias` its mask if that is to be added.
inline void ComputeList(const AttentionCall& call, const CellList& list, int64_t token,
                        const uint16_t* bias, int64_t kv_head, const Scratch& scratch,
                        const Partial& partial) {
  const int64_t row = list.token * call.group();
  WidenListed(call.keys, kv_head, list.cells, list.n, call.key_size, scratch.keys);
  WidenListed(call.values, kv_head, list.cells, list.n, call.value_size, scratch.values);
  CopyQueries(call, token, kv_head, call.scale * kLog2E, scratch.one_token);
  for (int64_t g = 0; g < call.group();) {
    const float* const queries = scratch.one_token + g * call.key_size;
    const int64_t left = call.group() - g;
    if (left >= 4) {
      ComputeHeads<4>(call, list, bias, queries, row + g, scratch, partial);
    } else if (left == 3) {
      ComputeHeads<3>(call, list, bias, queries, row + g, scratch, partial);
    } else if (left == 2) {
      ComputeHeads<2>(call, list, bias, queries, row + g, scratch, partial);
    } else {
      ComputeHeads<1>(call, list, bias, queries, row + g, scratch, partial);
    }
    g += Least<int64_t>(left, 4);
  }
}

}  // namespace polykv::POLYKV_ISA
