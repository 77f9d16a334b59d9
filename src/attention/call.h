// One attention operation over one cache that all query tokens share, as the kernels see it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polykv {

// Rows of values that lie `stride` bytes apart, those of one head `head_stride`. For keys and
// values a row is one cell's; `to_float` widens `n` of its values, and nullptr stands for half
// precision.
struct AttentionRows {
  const std::byte* data = nullptr;
  size_t stride = 0;
  size_t head_stride = 0;
  size_t row_bytes = 0;
  void (*to_float)(const void* from, float* to, int64_t n) = nullptr;

  const std::byte* Row(int64_t row, int64_t head) const {
    return data + static_cast<size_t>(row) * stride + static_cast<size_t>(head) * head_stride;
  }
};

// out[token][head] = softmax(scale * query . keys + mask) * values, over the cells that the mask
// leaves open; zero where there is none. A head's sink is one more score, with no value behind it.
// Query head h reads key head h / (n_heads / n_kv_heads).
struct AttentionCall {
  int64_t n_tokens = 0;
  int64_t n_heads = 0;
  int64_t n_kv_heads = 0;  // divides n_heads
  int64_t n_cells = 0;
  int64_t key_size = 0;    // values of one head's key
  int64_t value_size = 0;  // and of its value
  AttentionRows queries;   // 32-bit floats
  AttentionRows keys;
  AttentionRows values;
  const std::byte* mask = nullptr;  // [n_tokens][n_cells], half precision: 0, a bias, or -inf
  size_t mask_stride = 0;           // bytes
  const float* sinks = nullptr;     // [n_heads], or none
  float scale = 1;
  float* out = nullptr;  // [n_tokens][n_heads][value_size]

  int64_t group() const { return n_heads / n_kv_heads; }  // query heads of one key head
};

// The threads that compute one call together.
struct Team {
  int index = 0;
  int size = 1;
  void (*barrier)(void* context) = nullptr;  // returns when all `size` threads have called it
  void* context = nullptr;

  void Wait() const {
    if (size > 1) barrier(context);
  }
};

}  // namespace polykv
