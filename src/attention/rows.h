// Brings keys, values and queries into the layouts that the products want.
#pragma once

#include "attention/geometry.h"

namespace polykv::POLYKV_ISA {

inline constexpr float kLog2E = 1.44269504088896340736F;

inline void WidenRow(const AttentionRows& rows, const std::byte* from, int64_t size, float* to) {
  if (rows.to_float != nullptr) {
    rows.to_float(from, to, size);
    return;
  }
  for (int64_t d = 0; d < size; d += kLanes) {
    Store(to + d, LoadHalves(from + static_cast<size_t>(d) * sizeof(uint16_t)));
  }
}

// Rows of one head in the order of `cells`.
inline void WidenListed(const AttentionRows& rows, int64_t head, const int32_t* cells, int64_t n,
                        int64_t size, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    WidenRow(rows, rows.Row(cells[i], head), size, to + i * kRowStride);
  }
}

// A whole tile; cells from n_cells on become zeros.
inline void WidenTile(const AttentionRows& rows, int64_t head, int64_t tile, int64_t n_cells,
                      int64_t size, float* to) {
  const int64_t first = tile * kTile;
  const int64_t n = Least(kTile, n_cells - first);
  for (int64_t i = 0; i < n; ++i) {
    WidenRow(rows, rows.Row(first + i, head), size, to + i * kRowStride);
  }
  for (int64_t i = n; i < kTile; ++i) {
    std::memset(to + i * kRowStride, 0, static_cast<size_t>(size) * sizeof(float));
  }
}

// Whether all values of a widened tile are numbers.
inline bool IsFinite(const float* tile, int64_t size) {
  Vector zeros = {};
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t d = 0; d < size; d += kLanes) zeros += Load(tile + i * kRowStride + d) * 0.0F;
  }
  return Sum(zeros) == 0;
}

// Asks for the rows of a tile that is needed soon, some at a time, so that the memory is busy
// while the products are computed.
class TileFetch {
 public:
  TileFetch(const AttentionRows& rows, int64_t head, int64_t first, int64_t last)
      : rows_(rows), head_(head), next_(first), last_(last) {}

  void Fetch(int64_t n) {
    for (const int64_t end = Least(last_, next_ + n); next_ < end; ++next_) {
      const std::byte* const row = rows_.Row(next_, head_);
      for (size_t at = 0; at < rows_.row_bytes; at += Carver::kLine) {
        __builtin_prefetch(row + at, 0, 2);
      }
    }
  }

 private:
  const AttentionRows& rows_;
  int64_t head_;
  int64_t next_;
  int64_t last_;
};

inline const float* QueryOf(const AttentionCall& call, int64_t token, int64_t head) {
  return reinterpret_cast<const float*>(call.queries.Row(token, head));
}

// The group's queries of one token, one after the other, times `scale`.
inline void CopyQueries(const AttentionCall& call, int64_t token, int64_t kv_head, float scale,
                        float* to) {
  for (int64_t g = 0; g < call.group(); ++g, to += call.key_size) {
    const float* const query = QueryOf(call, token, kv_head * call.group() + g);
    for (int64_t d = 0; d < call.key_size; ++d) to[d] = query[d] * scale;
  }
}

// [key_size][rows] of the block's tokens, times `scale`; rows of no token are zero.
inline void TransposeQueries(const AttentionCall& call, const Geometry& g, int64_t first_token,
                             int64_t n_tokens, int64_t kv_head, float scale, float* to) {
  const int64_t stride = g.rows();
  const int64_t n_rows = n_tokens * g.group;
  for (int64_t row = 0; row < n_rows; ++row) {
    const float* const query =
        QueryOf(call, first_token + row / g.group, kv_head * g.group + row % g.group);
    for (int64_t d = 0; d < call.key_size; ++d) to[d * stride + row] = query[d] * scale;
  }
  for (int64_t d = 0; d < call.key_size; ++d) {
    for (int64_t row = n_rows; row < stride; ++row) to[d * stride + row] = 0;
  }
}

}  // namespace polykv::POLYKV_ISA
