#include "matmul/install.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "hook/operators.h"
#include "matmul/q4_1_product.h"

extern "C" void ggml_barrier(struct ggml_threadpool* pool);  // ggml-cpu-impl.h

namespace polykv {
namespace {

constexpr int64_t kMinColumns = 2;    // one is bound by reading the weights: ggml's is as fast
constexpr int64_t kRowsPerTurn = 32;  // rows that a thread takes at a time
constexpr size_t kAlignment = 64;

bool IsMatrix(const ggml_tensor& tensor) { return tensor.ne[2] == 1 && tensor.ne[3] == 1; }

bool IsOurs(const ggml_tensor& op) {
  if (op.op != GGML_OP_MUL_MAT || op.src[0]->type != GGML_TYPE_Q4_1) return false;
  const ggml_tensor& weights = *op.src[0];
  const ggml_tensor& x = *op.src[1];
  return x.ne[1] >= kMinColumns && x.type == GGML_TYPE_F32 && op.type == GGML_TYPE_F32 &&
         IsMatrix(weights) && IsMatrix(x) && weights.nb[0] == ggml_type_size(GGML_TYPE_Q4_1) &&
         x.nb[0] == sizeof(float) && op.nb[0] == sizeof(float) &&
         weights.ne[0] % Q81Columns::kBlock == 0 &&
         ggml_backend_buffer_is_host(weights.view_src != nullptr ? weights.view_src->buffer
                                                                 : weights.buffer);
}

// The threads' shared memory: whose turn it is, then the packed columns.
struct Work {
  std::atomic<int64_t>* next_row;
  Q81Columns columns;

  static size_t Bytes(const ggml_tensor& op) {
    return 2 * kAlignment +
           Q81Columns::BytesFor(op.src[1]->ne[1], op.src[0]->ne[0] / Q81Columns::kBlock);
  }
  Work(void* memory, const ggml_tensor& op) {
    size_t space = Bytes(op);
    void* const aligned = std::align(kAlignment, Bytes(op) - kAlignment, memory, space);
    next_row = static_cast<std::atomic<int64_t>*>(aligned);
    columns = {reinterpret_cast<Q81Columns::Block*>(static_cast<std::byte*>(aligned) + kAlignment),
               op.src[1]->ne[1], op.src[0]->ne[0] / Q81Columns::kBlock};
  }
};

class MatmulOperator final : public Operator {
 public:
  bool Takes(const ggml_tensor& op) const override { return IsOurs(op); }

  bool work_size(int /*n_threads*/, const ggml_tensor* op, size_t& size) override {
    size = Work::Bytes(*op);
    return true;
  }

  bool compute_forward(ggml_compute_params* params, ggml_tensor* op) override {
    const ggml_tensor& weights = *op->src[0];
    const ggml_tensor& x = *op->src[1];
    Work work(params->wdata, *op);
    const int64_t n_blocks = work.columns.n_blocks;
    PackColumns(static_cast<const float*>(x.data), static_cast<int64_t>(x.nb[1] / sizeof(float)),
                n_blocks * params->ith / params->nth, n_blocks * (params->ith + 1) / params->nth,
                &work.columns);
    if (params->ith == 0) work.next_row->store(0, std::memory_order_relaxed);
    ggml_barrier(params->threadpool);
    while (true) {
      const int64_t first = work.next_row->fetch_add(kRowsPerTurn, std::memory_order_relaxed);
      if (first >= weights.ne[1]) return true;
      MultiplyQ41(static_cast<const std::byte*>(weights.data), weights.nb[1], first,
                  std::min(first + kRowsPerTurn, weights.ne[1]), work.columns,
                  static_cast<float*>(op->data), static_cast<int64_t>(op->nb[1] / sizeof(float)));
    }
  }
};

// A product that is long enough to show another rounding anywhere.
bool TrialHasGgmlsBits() {
  constexpr int64_t kLength = 512;
  constexpr int64_t kRows = 3;
  constexpr int64_t kColumns = 9;
  const auto wave = [](int64_t n, float step) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto turn = static_cast<float>(i * i % 1021);  // a prime: no period in sight
      values[i] = (turn - 510.0F) * step;
    }
    return values;
  };
  const size_t row_bytes = ggml_row_size(GGML_TYPE_Q4_1, kLength);
  std::vector<std::byte> weights(row_bytes * kRows);
  ggml_quantize_chunk(GGML_TYPE_Q4_1, wave(kRows * kLength, 0.0013F).data(), weights.data(), 0,
                      kRows, kLength, nullptr);
  const std::vector<float> x = wave(kColumns * kLength, 0.0171F);
  constexpr int64_t kBlocks = kLength / Q81Columns::kBlock;
  const auto blocks = std::make_unique<Q81Columns::Block[]>(
      Q81Columns::BytesFor(kColumns, kBlocks) / sizeof(Q81Columns::Block));
  Q81Columns columns{blocks.get(), kColumns, kBlocks};
  PackColumns(x.data(), kLength, 0, kBlocks, &columns);
  std::vector<float> ours(kRows * kColumns);
  MultiplyQ41(weights.data(), row_bytes, 0, kRows, columns, ours.data(), kRows);

  const ggml_type_traits_cpu& q4_1 = *ggml_get_type_traits_cpu(GGML_TYPE_Q4_1);
  std::vector<std::byte> column(ggml_row_size(GGML_TYPE_Q8_1, kLength));
  for (size_t i = 0; i < ours.size(); ++i) {
    const size_t c = i / kRows;
    ggml_get_type_traits_cpu(GGML_TYPE_Q8_1)->from_float(&x[c * kLength], column.data(), kLength);
    float theirs = 0;
    q4_1.vec_dot(kLength, &theirs, 0, &weights[i % kRows * row_bytes], 0, column.data(), 0, 1);
    if (std::bit_cast<uint32_t>(theirs) != std::bit_cast<uint32_t>(ours[i])) return false;
  }
  return true;
}

bool Install() {
  if (!CanAddOperators() || !CanMultiplyQ41() || !TrialHasGgmlsBits()) return false;
  static MatmulOperator matmul;
  AddOperator(&matmul);
  return true;
}

}  // namespace

bool InstallMatmul() {
  static const bool installed = Install();
  return installed;
}

}  // namespace polykv
