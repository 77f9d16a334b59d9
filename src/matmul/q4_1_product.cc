#include "matmul/q4_1_product.h"

#include <algorithm>
#include <cstring>

#include "ggml-cpu.h"
#include "ggml.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace polykv {
namespace {

// ggml's block layouts (ggml-common.h): half-precision pair, then the values.
struct Q41Block {
  ggml_fp16_t scale;
  ggml_fp16_t minimum;
  uint8_t nibbles[Q81Columns::kBlock / 2];  // low nibbles: the first half of the values
};
struct Q81Block {
  ggml_fp16_t scale;
  ggml_fp16_t scaled_sum;
  int8_t values[Q81Columns::kBlock];
};

}  // namespace

void PackColumns(const float* x, int64_t stride, int64_t first, int64_t last, Q81Columns* columns) {
  const ggml_from_float_t quantize = ggml_get_type_traits_cpu(GGML_TYPE_Q8_1)->from_float;
  for (int64_t column = 0; column < columns->n_columns; ++column) {
    const int64_t lane = column % Q81Columns::kGroup;
    Q81Columns::Block* const out =
        columns->blocks + column / Q81Columns::kGroup * columns->n_blocks;
    for (int64_t block = first; block < last; ++block) {
      Q81Block quantized;
      quantize(x + column * stride + block * Q81Columns::kBlock, &quantized, Q81Columns::kBlock);
      out[block].scale[lane] = ggml_fp16_to_fp32(quantized.scale);
      out[block].scaled_sum[lane] = ggml_fp16_to_fp32(quantized.scaled_sum);
      std::memcpy(out[block].values[lane], quantized.values, sizeof(quantized.values));
    }
  }
}

#if defined(__x86_64__)

#define POLYKV_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")))

bool CanMultiplyQ41() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("fma");
}

namespace {

// A pair of rows in one register: the lower half is the first row's, the upper the second's.

POLYKV_TARGET inline __m512i UnpackPair(const Q41Block& a, const Q41Block& b) {
  const __m128i bytes_a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a.nibbles));
  const __m128i bytes_b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b.nibbles));
  const __m256i half_a = _mm256_set_m128i(_mm_srli_epi16(bytes_a, 4), bytes_a);
  const __m256i half_b = _mm256_set_m128i(_mm_srli_epi16(bytes_b, 4), bytes_b);
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(half_a), half_b, 1);
  return _mm512_and_si512(both, _mm512_set1_epi8(0xF));
}

POLYKV_TARGET inline __m512 Halves(float a, float b) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_set1_ps(a)), _mm256_set1_ps(b), 1);
}

// Each pair's scales and minima of one block, in the halves of a register.
template <int kPairs>
POLYKV_TARGET inline void WidenOneByOne(const Q41Block* const (&rows)[2 * kPairs], int64_t block,
                                        __m512 (&scales)[kPairs], __m512 (&minima)[kPairs]) {
  for (int p = 0; p < kPairs; ++p) {
    const Q41Block& a = rows[2 * p][block];
    const Q41Block& b = rows[2 * p + 1][block];
    scales[p] = Halves(_cvtsh_ss(a.scale), _cvtsh_ss(b.scale));
    minima[p] = Halves(_cvtsh_ss(a.minimum), _cvtsh_ss(b.minimum));
  }
}

// The same in fewer instructions, but it takes registers that many columns need for their sums.
template <int kPairs>
POLYKV_TARGET inline void WidenTogether(const Q41Block* const (&rows)[2 * kPairs], int64_t block,
                                        __m512 (&scales)[kPairs], __m512 (&minima)[kPairs]) {
  alignas(32) int32_t packed[8] = {};
  for (int row = 0; row < 2 * kPairs; ++row) {
    std::memcpy(&packed[row], &rows[row][block].scale, sizeof(packed[row]));
  }
  const __m512 widened =
      _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(packed)));
  const __m512i halves = _mm512_set_epi32(2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0);
  for (int p = 0; p < kPairs; ++p) {
    const __m512i lanes = _mm512_add_epi32(halves, _mm512_set1_epi32(4 * p));
    scales[p] = _mm512_permutexvar_ps(lanes, widened);
    minima[p] = _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(1)), widened);
  }
}

// Adds the eight lanes of each half in ggml's order; the sums are in lanes 0 and 8.
POLYKV_TARGET inline __m512 SumHalves(__m512 x) {
  x = _mm512_add_ps(_mm512_shuffle_f32x4(x, x, _MM_SHUFFLE(2, 3, 0, 1)), x);
  x = _mm512_add_ps(x, _mm512_permute_ps(x, _MM_SHUFFLE(3, 2, 3, 2)));
  return _mm512_add_ps(x, _mm512_movehdup_ps(x));
}

// kPairs pairs of rows times the first kColumns columns of one group.
template <int kPairs, int kColumns>
POLYKV_TARGET __attribute__((noinline)) void MultiplyTile(const Q41Block* const (&rows)[2 * kPairs],
                                                          const Q81Columns::Block* columns,
                                                          int64_t n_blocks, float* out,
                                                          int64_t out_stride) {
  __m512 products[kPairs][kColumns];
  __m512 minima[kPairs];  // of column c: lanes c and 8 + c
  for (int p = 0; p < kPairs; ++p) {
    minima[p] = _mm512_setzero_ps();
    for (int c = 0; c < kColumns; ++c) products[p][c] = _mm512_setzero_ps();
  }
  const __m512i second_half = _mm512_set_epi32(8, 8, 8, 8, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0);
  for (int64_t block = 0; block < n_blocks; ++block) {
    const Q81Columns::Block& column = columns[block];
    const __m512 column_scales = _mm512_broadcast_f32x8(_mm256_load_ps(column.scale));
    const __m512 column_sums = _mm512_broadcast_f32x8(_mm256_load_ps(column.scaled_sum));
    __m512i weights[kPairs];
    __m512 scales[kPairs];  // of column c: lanes c and 8 + c
    __m512 row_minima[kPairs];
    if constexpr (kColumns <= 4) {
      WidenTogether<kPairs>(rows, block, scales, row_minima);
    } else {
      WidenOneByOne<kPairs>(rows, block, scales, row_minima);
    }
    for (int p = 0; p < kPairs; ++p) {
      weights[p] = UnpackPair(rows[2 * p][block], rows[2 * p + 1][block]);
      scales[p] = _mm512_mul_ps(scales[p], column_scales);
      minima[p] = _mm512_fmadd_ps(row_minima[p], column_sums, minima[p]);
    }
    for (int c = 0; c < kColumns; ++c) {
      const __m512i values = _mm512_broadcast_i64x4(
          _mm256_load_si256(reinterpret_cast<const __m256i*>(column.values[c])));
      const __m512i lanes = _mm512_add_epi32(second_half, _mm512_set1_epi32(c));
      for (int p = 0; p < kPairs; ++p) {
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), weights[p], values);
        products[p][c] = _mm512_fmadd_ps(_mm512_permutexvar_ps(lanes, scales[p]),
                                         _mm512_cvtepi32_ps(dot), products[p][c]);
      }
    }
  }
  for (int p = 0; p < kPairs; ++p) {
    alignas(64) float least[16];
    _mm512_store_ps(least, minima[p]);
    for (int c = 0; c < kColumns; ++c) {
      const __m512 sums = SumHalves(products[p][c]);
      float* const to = out + c * out_stride + 2 * p;
      to[0] = _mm512_cvtss_f32(sums) + least[c];
      to[1] = _mm_cvtss_f32(_mm512_extractf32x4_ps(sums, 2)) + least[8 + c];
    }
  }
}

// Rows [row, row + 2 * kPairs).
template <int kPairs, int kColumns>
void MultiplyRows(const std::byte* weights, size_t row_bytes, int64_t row,
                  const Q81Columns::Block* columns, int64_t n_blocks, float* out,
                  int64_t out_stride) {
  const Q41Block* rows[2 * kPairs];
  for (int64_t i = 0; i < 2 * kPairs; ++i) {
    rows[i] = reinterpret_cast<const Q41Block*>(weights + static_cast<size_t>(row + i) * row_bytes);
  }
  MultiplyTile<kPairs, kColumns>(rows, columns, n_blocks, out + row, out_stride);
}

// As many rows at once as the registers hold: the accumulators are kPairs * kColumns of them.
template <int kColumns>
void MultiplyGroup(const std::byte* weights, size_t row_bytes, int64_t first, int64_t last,
                   const Q81Columns::Block* columns, int64_t n_blocks, float* out,
                   int64_t out_stride) {
  constexpr int kPairs = kColumns <= 4 ? 4 : 2;
  int64_t row = first;
  for (; row + 2 * kPairs <= last; row += 2 * kPairs) {
    MultiplyRows<kPairs, kColumns>(weights, row_bytes, row, columns, n_blocks, out, out_stride);
  }
  for (; row + 2 <= last; row += 2) {
    MultiplyRows<1, kColumns>(weights, row_bytes, row, columns, n_blocks, out, out_stride);
  }
  if (row == last) return;
  float pair[Q81Columns::kGroup * 2];  // the last row beside itself
  const Q41Block* const one =
      reinterpret_cast<const Q41Block*>(weights + static_cast<size_t>(row) * row_bytes);
  MultiplyTile<1, kColumns>({one, one}, columns, n_blocks, pair, 2);
  for (int64_t c = 0; c < kColumns; ++c) out[c * out_stride + row] = pair[2 * c];
}

using Group = void (*)(const std::byte*, size_t, int64_t, int64_t, const Q81Columns::Block*,
                       int64_t, float*, int64_t);
constexpr Group kGroups[] = {&MultiplyGroup<1>, &MultiplyGroup<2>, &MultiplyGroup<3>,
                             &MultiplyGroup<4>, &MultiplyGroup<5>, &MultiplyGroup<6>,
                             &MultiplyGroup<7>, &MultiplyGroup<8>};

}  // namespace

void MultiplyQ41(const std::byte* weights, size_t row_bytes, int64_t first, int64_t last,
                 const Q81Columns& columns, float* out, int64_t out_stride) {
  constexpr int64_t kRows = 32;  // their weights stay in the first-level cache for all groups
  for (int64_t row = first; row < last; row += kRows) {
    const int64_t end = std::min(row + kRows, last);
    for (int64_t group = 0; group < columns.n_groups(); ++group) {
      const int64_t column = group * Q81Columns::kGroup;
      const int64_t n = std::min(Q81Columns::kGroup, columns.n_columns - column);
      kGroups[n - 1](weights, row_bytes, row, end, columns.blocks + group * columns.n_blocks,
                     columns.n_blocks, out + column * out_stride, out_stride);
    }
  }
}

#else

bool CanMultiplyQ41() { return false; }
void MultiplyQ41(const std::byte*, size_t, int64_t, int64_t, const Q81Columns&, float*, int64_t) {}

#endif

}  // namespace polykv
