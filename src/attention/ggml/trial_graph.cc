#include "attention/ggml/trial_graph.h"

#include <cmath>
#include <cstring>

#include "ggml-cpu.h"

namespace polykv {
namespace {

constexpr size_t kMaxTensors = 16;

// Between -1 and 1, without a period in sight.
std::vector<float> Noise(int64_t n, float phase) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto turn = static_cast<float>(i * i % 10'007 + i % 97);
    values[i] = std::sin(phase + 0.7F * turn);
  }
  return values;
}

void SetFloats(ggml_tensor* tensor, float phase) {
  const std::vector<float> values = Noise(ggml_nelements(tensor), phase);
  std::vector<std::byte> bytes(ggml_nbytes(tensor));
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    ggml_quantize_chunk(tensor->type, values.data(), bytes.data(), 0, ggml_nrows(tensor),
                        tensor->ne[0], nullptr);
  }
  ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
}

void SetMask(ggml_tensor* mask) {
  std::vector<ggml_fp16_t> values(static_cast<size_t>(ggml_nelements(mask)));
  values[static_cast<size_t>((mask->ne[1] - 1) * mask->ne[0])] = ggml_fp32_to_fp16(-INFINITY);
  ggml_backend_tensor_set(mask, values.data(), 0, ggml_nbytes(mask));
}

}  // namespace

TrialShape ShapeOf(const ggml_tensor& attention) {
  const ggml_tensor& keys = *attention.src[1];
  const ggml_tensor& values = *attention.src[2];
  TrialShape shape{.key_type = keys.type,
                   .value_type = values.type,
                   .n_heads = attention.src[0]->ne[2],
                   .n_kv_heads = keys.ne[2],
                   .key_size = keys.ne[0],
                   .value_size = values.ne[0]};
  std::memcpy(&shape.scale, attention.op_params, sizeof(shape.scale));
  return shape;
}

TrialGraph::TrialGraph(const TrialShape& shape, int64_t n_tokens, int64_t n_cells, int n_threads)
    : backend_(ggml_backend_cpu_init()),
      context_(ggml_init({.mem_size = kMaxTensors * ggml_tensor_overhead() +
                                      ggml_graph_overhead_custom(kMaxTensors, false),
                          .mem_buffer = nullptr,
                          .no_alloc = true})) {
  ggml_backend_cpu_set_n_threads(backend_.get(), n_threads);
  ggml_context* const context = context_.get();
  // As libllama lays them out: a cell's heads lie together.
  ggml_tensor* const queries =
      ggml_new_tensor_3d(context, GGML_TYPE_F32, shape.key_size, shape.n_heads, n_tokens);
  ggml_tensor* const keys =
      ggml_new_tensor_3d(context, shape.key_type, shape.key_size, shape.n_kv_heads, n_cells);
  ggml_tensor* const values =
      ggml_new_tensor_3d(context, shape.value_type, shape.value_size, shape.n_kv_heads, n_cells);
  ggml_tensor* const mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, n_cells, n_tokens);
  output_ = ggml_flash_attn_ext(context, ggml_permute(context, queries, 0, 2, 1, 3),
                                ggml_permute(context, keys, 0, 2, 1, 3),
                                ggml_permute(context, values, 0, 2, 1, 3), mask, shape.scale, 0, 0);
  graph_ = ggml_new_graph_custom(context, kMaxTensors, false);
  ggml_build_forward_expand(graph_, output_);
  buffer_.reset(ggml_backend_alloc_ctx_tensors(context, backend_.get()));
  SetFloats(queries, 0.1F);
  SetFloats(keys, 0.2F);
  SetFloats(values, 0.3F);
  SetMask(mask);
}

void TrialGraph::Compute() { ggml_backend_graph_compute(backend_.get(), graph_); }

std::vector<float> TrialGraph::Output() const {
  std::vector<float> values(static_cast<size_t>(ggml_nelements(output_)));
  ggml_backend_tensor_get(output_, values.data(), 0, ggml_nbytes(output_));
  return values;
}

}  // namespace polykv
