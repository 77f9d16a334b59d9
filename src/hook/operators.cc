#include "hook/operators.h"

#include <vector>

#include "base/check.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

namespace polykv {
namespace {

constexpr size_t kAlignment = 64;

// One for all operators: ggml asks each type for each operation.
class OperatorBufferType final : public ggml::cpu::extra_buffer_type {
 public:
  bool supports_op(ggml_backend_dev_t, const ggml_tensor*) override { return false; }
  ggml::cpu::tensor_traits* get_tensor_traits(const ggml_tensor* tensor) override {
    for (Operator* const op : operators_) {
      if (op->Takes(*tensor)) return op;
    }
    return nullptr;
  }

  void Add(Operator* op) { operators_.push_back(op); }

 private:
  std::vector<Operator*> operators_;
};

// nullptr if ggml has no such list.
OperatorBufferType* MakeBufferType() {
  ggml_cpu_init();
  ggml_backend_reg_t const registry = ggml_backend_cpu_reg();
  ggml_backend_dev_t const device = ggml_backend_reg_dev_get(registry, 0);
  // What the model loader may put weights into is settled by the first question: ours must not be
  // among it.
  const auto list_for_weights = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
  if (list_for_weights == nullptr) return nullptr;
  list_for_weights(device);

  static OperatorBufferType context;
  static ggml_backend_buffer_type type = {
      .iface = {.get_name = [](ggml_backend_buffer_type_t) { return "PolyKV"; },
                .alloc_buffer = [](ggml_backend_buffer_type_t, size_t) -> ggml_backend_buffer_t {
                  return nullptr;
                },
                .get_alignment = [](ggml_backend_buffer_type_t) { return kAlignment; },
                .get_max_size = nullptr,
                .get_alloc_size = nullptr,
                .is_host = nullptr},
      .device = device,
      .context = &context,
  };
  ggml_backend_cpu_get_extra_buffer_types().push_back(&type);
  return &context;
}

OperatorBufferType* BufferType() {
  static OperatorBufferType* const type = MakeBufferType();
  return type;
}

}  // namespace

bool CanAddOperators() { return BufferType() != nullptr; }

void AddOperator(Operator* op) {
  POLYKV_CHECK(CanAddOperators());
  BufferType()->Add(op);
}

}  // namespace polykv
