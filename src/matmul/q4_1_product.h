// Products of Q4_1 weights with several columns at once, bit for bit what ggml computes.
//
// ggml has no blocked kernel for Q4_1: for each pair of a weight row and a column it unpacks the
// row's nibbles and scales again. Here two rows fill a register and up to eight columns share what
// is unpacked. Within a pair every operation and its order are those of ggml's
// ggml_vec_dot_q4_1_q8_1 on AVX2 and above, so that results do not depend on which of the two ran.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polykv {

// The columns of a product, quantized to Q8_1 and laid out so that those of one group lie together.
struct Q81Columns {
  static constexpr int64_t kBlock = 32;  // values that share a scale
  static constexpr int64_t kGroup = 8;   // columns that are multiplied together

  struct alignas(64) Block {   // one block of each column of a group
    float scale[kGroup];       // the half-precision figures of ggml's block_q8_1, widened
    float scaled_sum[kGroup];  // its `s`
    int8_t values[kGroup][kBlock];
  };

  Block* blocks = nullptr;  // [n_groups()][n_blocks], 64-byte aligned
  int64_t n_columns = 0;
  int64_t n_blocks = 0;  // per column

  int64_t n_groups() const { return (n_columns + kGroup - 1) / kGroup; }
  static size_t BytesFor(int64_t n_columns, int64_t n_blocks) {
    return static_cast<size_t>((n_columns + kGroup - 1) / kGroup * n_blocks) * sizeof(Block);
  }
};

// Whether this processor can run the functions below (AVX-512 with VNNI).
bool CanMultiplyQ41();

// Quantizes the blocks [first, last) of every column. Column c begins at x + c * stride (floats).
void PackColumns(const float* x, int64_t stride, int64_t first, int64_t last, Q81Columns* columns);

// For weight rows [first, last) and all columns: out[c * out_stride + row]. `weights` is row 0,
// rows lie `row_bytes` apart and hold columns.n_blocks blocks of Q4_1 each.
void MultiplyQ41(const std::byte* weights, size_t row_bytes, int64_t first, int64_t last,
                 const Q81Columns& columns, float* out, int64_t out_stride);

}  // namespace polykv
