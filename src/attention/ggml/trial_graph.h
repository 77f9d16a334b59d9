// One attention operation of a given shape with content of its own, to be computed again and again.
#pragma once

#include <memory>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"

namespace polykv {

struct TrialShape {
  ggml_type key_type = GGML_TYPE_F16;
  ggml_type value_type = GGML_TYPE_F16;
  int64_t n_heads = 1;
  int64_t n_kv_heads = 1;
  int64_t key_size = 64;
  int64_t value_size = 64;
  float scale = 1;
};

TrialShape ShapeOf(const ggml_tensor& attention);

// `n_tokens` query tokens that all see `n_cells` cells, except that the last one misses the first.
class TrialGraph {
 public:
  // Values are the same for the same arguments.
  TrialGraph(const TrialShape& shape, int64_t n_tokens, int64_t n_cells, int n_threads);

  void Compute();
  std::vector<float> Output() const;

 private:
  struct Free {
    void operator()(ggml_context* context) const { ggml_free(context); }
    void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
    void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  };

  std::unique_ptr<ggml_backend, Free> backend_;
  std::unique_ptr<ggml_context, Free> context_;
  std::unique_ptr<ggml_backend_buffer, Free> buffer_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* output_ = nullptr;
};

}  // namespace polykv
