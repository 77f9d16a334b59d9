#include "attention/ggml/attention_operator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/ggml/attention_call.h"
#include "attention/ggml/trial_graph.h"
#include "hook/operators.h"

extern "C" void ggml_barrier(struct ggml_threadpool* pool);  // ggml-cpu-impl.h

namespace polykv {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

class AttentionOperator final : public Operator {
 public:
  AttentionSwitch* control() { return &control_; }
  const std::optional<TrialShape>& shape() const { return shape_; }

  // All attention, so that what ggml computes is counted too.
  bool Takes(const ggml_tensor& op) const override { return op.op == GGML_OP_FLASH_ATTN_EXT; }

  bool work_size(int n_threads, const ggml_tensor* op, size_t& size) override {
    const std::optional<AttentionCall> call = OursOf(*op);
    if (!call.has_value()) return false;
    size = kernel_.work_bytes(*call, n_threads);
    return true;
  }

  bool compute_forward(ggml_compute_params* params, ggml_tensor* op) override {
    const std::optional<AttentionCall> call = OursOf(*op);
    if (params->ith == 0) Count(*op, call.has_value());
    if (!call.has_value()) return false;
    const Team team{
        .index = params->ith,
        .size = params->nth,
        .barrier = [](void* pool) { ggml_barrier(static_cast<ggml_threadpool*>(pool)); },
        .context = params->threadpool};
    kernel_.compute(*call, team, static_cast<std::byte*>(params->wdata));
    return true;
  }

 private:
  std::optional<AttentionCall> OursOf(const ggml_tensor& op) const {
    return control_.on.load(kRelaxed) ? CallOf(op) : std::nullopt;
  }

  void Count(const ggml_tensor& op, bool ours) {
    (ours ? control_.n_ours : control_.n_ggml).fetch_add(1, kRelaxed);
    if (!shape_.has_value() && CallOf(op).has_value()) shape_ = ShapeOf(op);
  }

  const AttentionKernel kernel_ = *KernelFor(BestInstructionSet());
  AttentionSwitch control_;
  std::optional<TrialShape> shape_;  // the first that the kernel covers
};

AttentionOperator* Install() {
  if (!CanAddOperators()) return nullptr;
  static AttentionOperator attention;
  AddOperator(&attention);
  return &attention;
}

AttentionOperator* Installed() {
  static AttentionOperator* const attention = Install();
  return attention;
}

constexpr int64_t kTrialCells = 1024;
constexpr int kTrialTurns = 4;

// The faster of some turns each.
AttentionTrial TryTokens(AttentionSwitch* attention, const TrialShape& shape, int64_t n_tokens,
                         int n_threads, const Clock& clock) {
  TrialGraph graph(shape, n_tokens, kTrialCells, n_threads);
  constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();
  AttentionTrial trial{.ggml_us = kNever, .ours_us = kNever};
  std::vector<float> output[2];
  for (int turn = 0; turn < 2 * kTrialTurns; ++turn) {
    const bool ours = turn % 2 == 1;
    attention->on.store(ours, kRelaxed);
    const TimeUs begin = clock.NowUs();
    graph.Compute();
    TimeUs& best = ours ? trial.ours_us : trial.ggml_us;
    best = std::min(best, clock.NowUs() - begin);
    output[ours ? 1 : 0] = graph.Output();
  }
  for (size_t i = 0; i < output[0].size(); ++i) {
    const float difference = std::abs(output[0][i] - output[1][i]);
    trial.difference = std::isnan(difference) ? std::numeric_limits<float>::infinity()
                                              : std::max(trial.difference, difference);
  }
  return trial;
}

}  // namespace

AttentionSwitch* InstallAttention() {
  return Installed() != nullptr ? Installed()->control() : nullptr;
}

std::optional<AttentionTrial> TryAttention(int n_threads, const Clock& clock) {
  AttentionSwitch* const attention = Installed()->control();
  const std::optional<TrialShape> shape = Installed()->shape();
  if (!shape.has_value()) return std::nullopt;
  const bool was_on = attention->on.load(kRelaxed);
  const int64_t n_ours = attention->n_ours.load(kRelaxed);
  const int64_t n_ggml = attention->n_ggml.load(kRelaxed);
  const AttentionTrial one = TryTokens(attention, *shape, 1, n_threads, clock);
  const AttentionTrial many = TryTokens(attention, *shape, 8, n_threads, clock);
  attention->on.store(was_on, kRelaxed);
  attention->n_ours.store(n_ours, kRelaxed);
  attention->n_ggml.store(n_ggml, kRelaxed);
  return AttentionTrial{.ggml_us = one.ggml_us + many.ggml_us,
                        .ours_us = one.ours_us + many.ours_us,
                        .difference = std::max(one.difference, many.difference)};
}

}  // namespace polykv
