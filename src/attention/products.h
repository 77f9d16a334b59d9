// The inner loops: small matrix products whose sums stay in registers.
#pragma once

#include "attention/limits.h"
#include "attention/vectors.h"

namespace polykv::POLYKV_ISA {

// Floats from one widened row to the next: more than any row has, and no power of two, so that
// the rows of a tile do not compete for the same cache lines.
inline constexpr int kRowStride = kMaxHeadSize + 16;
inline constexpr int kRunLanes = kAccumulatorVectors * kLanes;  // query rows computed at once

// out[i][.] = (kAdd ? out[i][.] : 0) + sum over k < n of a[i * kStrideI + k * kStrideK] * b[k][.]
// for kRows rows i and kVectors vectors of columns. Inlined, the compiler would spill the sums.
template <int kRows, int kVectors, int kStrideI, int kStrideK, bool kAdd>
[[gnu::noinline]] void MultiplyBlock(const float* a, const float* b, int64_t b_stride, int64_t n,
                                     float* out, int64_t out_stride) {
  Vector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = kAdd ? Load(out + i * out_stride + v * kLanes) : Vector{};
    }
  }
  for (int64_t k = 0; k < n; ++k, a += kStrideK, b += b_stride) {
    Vector columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) columns[v] = Load(b + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vector factor = Splat(a[i * kStrideI]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] += factor * columns[v];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(out + i * out_stride + v * kLanes, sums[i][v]);
  }
}

// How many of `left` vectors to take at once: no single one is left over if that can be avoided.
inline int VectorsAtOnce(int64_t left) {
  if (left == kAccumulatorVectors + 1 && kAccumulatorVectors == 3) return 2;
  return static_cast<int>(Least<int64_t>(left, kAccumulatorVectors));
}

// The same, for any number of vectors.
template <int kRows, int kStrideI, int kStrideK, bool kAdd>
void MultiplyRows(const float* a, const float* b, int64_t b_stride, int64_t n, float* out,
                  int64_t out_stride, int64_t n_vectors) {
  for (int64_t v = 0; v < n_vectors;) {
    const float* const columns = b + v * kLanes;
    float* const to = out + v * kLanes;
    const int taken = VectorsAtOnce(n_vectors - v);
    if (taken == 3) {
      MultiplyBlock<kRows, 3, kStrideI, kStrideK, kAdd>(a, columns, b_stride, n, to, out_stride);
    } else if (taken == 2) {
      MultiplyBlock<kRows, 2, kStrideI, kStrideK, kAdd>(a, columns, b_stride, n, to, out_stride);
    } else {
      MultiplyBlock<kRows, 1, kStrideI, kStrideK, kAdd>(a, columns, b_stride, n, to, out_stride);
    }
    v += taken;
  }
}

// scores[g][i] = query g . key i for kHeads queries of `size` values and n keys.
template <int kHeads>
[[gnu::noinline]] void DotRows(const float* queries, const float* keys, int64_t size, int64_t n,
                               float* scores) {
  for (int64_t i = 0; i < n; ++i) {
    Vector sums[kHeads] = {};
    for (int64_t d = 0; d < size; d += kLanes) {
      const Vector key = Load(keys + i * kRowStride + d);
#pragma GCC unroll 4
      for (int g = 0; g < kHeads; ++g) sums[g] += key * Load(queries + g * size + d);
    }
#pragma GCC unroll 4
    for (int g = 0; g < kHeads; ++g) scores[g * kTile + i] = Sum(sums[g]);
  }
}

}  // namespace polykv::POLYKV_ISA
