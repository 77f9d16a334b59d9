#include "attention/ggml/attention_call.h"

#include <cstring>

#include "attention/kernels.h"

namespace polykv {
namespace {

struct Parameters {
  float scale;
  float max_bias;  // of ALiBi
  float soft_cap;
};

Parameters ParametersOf(const ggml_tensor& op) {
  Parameters parameters;
  std::memcpy(&parameters, op.op_params, sizeof(parameters));
  return parameters;
}

bool IsOneStream(const ggml_tensor& tensor) { return tensor.ne[3] == 1; }

bool HasPlainMask(const ggml_tensor& op) {
  const ggml_tensor* const mask = op.src[3];
  return mask != nullptr && mask->type == GGML_TYPE_F16 && mask->nb[0] == sizeof(ggml_fp16_t) &&
         mask->ne[2] == 1 && IsOneStream(*mask) && mask->ne[0] >= op.src[1]->ne[1] &&
         mask->ne[1] >= op.src[0]->ne[1];
}

// Whether rows of the tensor can be widened.
bool HasRows(const ggml_tensor& cache) {
  return IsOneStream(cache) && cache.nb[0] == ggml_type_size(cache.type) &&
         cache.ne[0] % ggml_blck_size(cache.type) == 0 &&
         ggml_get_type_traits(cache.type)->to_float != nullptr;
}

bool IsPlain(const ggml_tensor& op) {
  const ggml_tensor& queries = *op.src[0];
  const ggml_tensor& keys = *op.src[1];
  const ggml_tensor& values = *op.src[2];
  const Parameters parameters = ParametersOf(op);
  return parameters.max_bias == 0 && parameters.soft_cap == 0 && HasPlainMask(op) &&
         HasRows(keys) && HasRows(values) && keys.ne[1] == values.ne[1] &&
         keys.ne[2] == values.ne[2] && queries.type == GGML_TYPE_F32 &&
         queries.nb[0] == sizeof(float) && IsOneStream(queries) && op.type == GGML_TYPE_F32 &&
         ggml_is_contiguous(&op);
}

AttentionRows RowsOf(const ggml_tensor& tensor) {
  const bool as_it_is = tensor.type == GGML_TYPE_F16 || tensor.type == GGML_TYPE_F32;
  return {.data = static_cast<const std::byte*>(tensor.data),
          .stride = tensor.nb[1],
          .head_stride = tensor.nb[2],
          .row_bytes = ggml_row_size(tensor.type, tensor.ne[0]),
          .to_float = as_it_is ? nullptr : ggml_get_type_traits(tensor.type)->to_float};
}

}  // namespace

std::optional<AttentionCall> CallOf(const ggml_tensor& op) {
  if (!IsPlain(op)) return std::nullopt;
  const ggml_tensor& keys = *op.src[1];
  const ggml_tensor* const sinks = op.src[4];
  const AttentionCall call{
      .n_tokens = op.src[0]->ne[1],
      .n_heads = op.src[0]->ne[2],
      .n_kv_heads = keys.ne[2],
      .n_cells = keys.ne[1],
      .key_size = keys.ne[0],
      .value_size = op.src[2]->ne[0],
      .queries = RowsOf(*op.src[0]),
      .keys = RowsOf(keys),
      .values = RowsOf(*op.src[2]),
      .mask = static_cast<const std::byte*>(op.src[3]->data),
      .mask_stride = op.src[3]->nb[1],
      .sinks = sinks != nullptr ? static_cast<const float*>(sinks->data) : nullptr,
      .scale = ParametersOf(op).scale,
      .out = static_cast<float*>(op.data),
  };
  if (!CoversShape(call)) return std::nullopt;
  return call;
}

}  // namespace polykv
