#include "matmul/q4_1_product.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "ggml-cpu.h"
#include "ggml.h"

namespace polykv {
namespace {

class Q41ProductTest : public testing::Test {
 protected:
  void SetUp() override {
    ggml_cpu_init();
    if (!CanMultiplyQ41()) GTEST_SKIP() << "this processor has no AVX-512 with VNNI";
  }

  std::vector<float> RandomFloats(size_t n, float scale) {
    std::normal_distribution<float> normal(0.0F, scale);
    std::vector<float> values(n);
    for (float& value : values) value = normal(random_);
    return values;
  }

  // The product by ggml's own functions, pair by pair: [column][row].
  static std::vector<float> ByGgml(const std::vector<std::byte>& weights, size_t row_bytes,
                                   int64_t n_rows, const std::vector<float>& x, int64_t n_columns,
                                   int64_t length) {
    const auto* q4_1 = ggml_get_type_traits_cpu(GGML_TYPE_Q4_1);
    const auto* q8_1 = ggml_get_type_traits_cpu(GGML_TYPE_Q8_1);
    std::vector<std::byte> column(ggml_row_size(GGML_TYPE_Q8_1, length));
    std::vector<float> out(static_cast<size_t>(n_rows * n_columns));
    for (int64_t c = 0; c < n_columns; ++c) {
      q8_1->from_float(x.data() + c * length, column.data(), length);
      for (int64_t row = 0; row < n_rows; ++row) {
        q4_1->vec_dot(static_cast<int>(length), &out[static_cast<size_t>(c * n_rows + row)], 0,
                      weights.data() + static_cast<size_t>(row) * row_bytes, 0, column.data(), 0,
                      1);
      }
    }
    return out;
  }

  void ExpectSameBits(int64_t n_rows, int64_t n_columns, int64_t length, float scale) {
    const size_t row_bytes = ggml_row_size(GGML_TYPE_Q4_1, length);
    const std::vector<float> w = RandomFloats(static_cast<size_t>(n_rows * length), 1.0F);
    std::vector<std::byte> weights(row_bytes * static_cast<size_t>(n_rows));
    ggml_quantize_chunk(GGML_TYPE_Q4_1, w.data(), weights.data(), 0, n_rows, length, nullptr);
    const std::vector<float> x = RandomFloats(static_cast<size_t>(n_columns * length), scale);

    const int64_t n_blocks = length / Q81Columns::kBlock;
    const auto blocks = std::make_unique<Q81Columns::Block[]>(
        Q81Columns::BytesFor(n_columns, n_blocks) / sizeof(Q81Columns::Block));
    Q81Columns columns{blocks.get(), n_columns, n_blocks};
    PackColumns(x.data(), length, 0, n_blocks / 2, &columns);
    PackColumns(x.data(), length, n_blocks / 2, n_blocks, &columns);
    std::vector<float> out(static_cast<size_t>(n_rows * n_columns), NAN);
    const int64_t middle = n_rows / 3;
    MultiplyQ41(weights.data(), row_bytes, middle, n_rows, columns, out.data(), n_rows);
    MultiplyQ41(weights.data(), row_bytes, 0, middle, columns, out.data(), n_rows);

    const std::vector<float> expected = ByGgml(weights, row_bytes, n_rows, x, n_columns, length);
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected[i]))
          << out[i] << " for " << expected[i] << " at " << i << " of " << n_rows << " rows, "
          << n_columns << " columns, length " << length;
    }
  }

  std::mt19937 random_{301};
};

TEST_F(Q41ProductTest, EveryNumberOfColumnsHasGgmlsBits) {
  for (int64_t n_columns = 1; n_columns <= 17; ++n_columns)
    ExpectSameBits(37, n_columns, 576, 1.0F);
}

TEST_F(Q41ProductTest, EveryNumberOfRowsHasGgmlsBits) {
  for (int64_t n_rows = 1; n_rows <= 41; ++n_rows) ExpectSameBits(n_rows, 8, 96, 1.0F);
}

TEST_F(Q41ProductTest, LengthsAndScalesHaveGgmlsBits) {
  for (const int64_t length : {32, 64, 1536, 4096}) {
    for (const float scale : {0.0F, 1e-6F, 1.0F, 1e3F}) ExpectSameBits(10, 9, length, scale);
  }
}

}  // namespace
}  // namespace polykv
