#include "tree/share_cost.h"

#include <algorithm>

#include "tree/engine_rig.h"
#include "tree/filled_backend.h"
#include "tree/median.h"
#include "tree/report.h"

namespace polykv {
namespace {

constexpr int32_t kSlots = 2;
constexpr int32_t kSessions = 2;
constexpr int32_t kSparePools = 2;

EngineConfig ConfigOf(const ShareCostPlan& plan) {
  EngineConfig config;
  config.n_parallel = kSlots;
  config.max_pools = plan.holders.back() + kSparePools;
  config.max_sessions = kSessions;
  config.n_ctx_plain = plan.n_ctx();
  config.n_ctx_session = plan.n_ctx();
  return config;
}

// A pool and what is measured on it.
class SharedPool {
 public:
  SharedPool(ModelBackend* model, const ShareCostPlan& plan, int32_t n_cells)
      : filled_(model, &clock_, FilledBackend::Computes::kNothing),
        rig_(&filled_, ConfigOf(plan)),
        tokens_(SomeTokens(n_cells, 1)) {
    pool_ = rig_.Wait(rig_.PostPool({.tokens = tokens_}));
  }

  void SetHolders(int32_t n_holders) {
    for (; n_holders_ < n_holders; ++n_holders_) Fork();
  }

  struct Cost {
    TimeUs take = 0;     // until the model would compute
    TimeUs give_up = 0;  // after it has
  };
  Cost Attach() {
    std::vector<Token> prompt = tokens_;
    prompt.push_back(FixedSampler::kToken);
    const TimeUs begin = clock_.NowUs();
    const auto channel =
        rig_.Submit(std::move(prompt), /*n_predict=*/1, {.pool = std::to_string(pool_)});
    rig_.engine().RunOneStep();
    const TimeUs end = clock_.NowUs();
    while (!EngineRig::Ended(*channel)) rig_.engine().RunOneStep();
    return {filled_.began_at() - begin, end - filled_.ended_at()};
  }
  Cost ForkAndRelease() {
    const TimeUs begin = clock_.NowUs();
    const PoolId fork = Fork();
    const TimeUs forked = clock_.NowUs();
    rig_.Release(fork);
    return {forked - begin, clock_.NowUs() - forked};
  }

 private:
  PoolId Fork() {
    return rig_.Wait(
        rig_.PostPool({.parent = std::to_string(pool_), .append = true, .unique = true}));
  }

  SteadyClock clock_;
  FilledBackend filled_;
  EngineRig rig_;
  std::vector<Token> tokens_;
  PoolId pool_ = kNoPool;
  int32_t n_holders_ = 1;  // the pool itself
};

void ReportCost(const std::string& name, int32_t n_cells, int32_t n_holders, const char* what,
                const std::vector<SharedPool::Cost>& costs) {
  std::vector<double> take;
  std::vector<double> give_up;
  for (const SharedPool::Cost& cost : costs) {
    take.push_back(static_cast<double>(cost.take));
    give_up.push_back(static_cast<double>(cost.give_up));
  }
  Row("share")
      .Add("backend", name)
      .Add("what", what)
      .Add("cells", n_cells)
      .Add("holders", n_holders)
      .Add("us", Median(take))
      .Add("give_up_us", Median(give_up));
}

void MeasurePool(ModelBackend* model, const std::string& name, const ShareCostPlan& plan,
                 int32_t n_cells) {
  SharedPool pool(model, plan, n_cells);
  const int64_t before = ResidentBytes();
  for (const int32_t n_holders : plan.holders) {
    Say("%s backend, %d cells, %d holders", name.c_str(), n_cells, n_holders);
    pool.SetHolders(n_holders);
    std::vector<SharedPool::Cost> attach;
    std::vector<SharedPool::Cost> fork;
    for (int32_t run = 0; run < plan.runs; ++run) {
      attach.push_back(pool.Attach());
      fork.push_back(pool.ForkAndRelease());
    }
    ReportCost(name, n_cells, n_holders, "attach", attach);
    ReportCost(name, n_cells, n_holders, "fork", fork);
  }
  const int32_t n_added = plan.holders.back() - 1;
  Row("memory")
      .Add("backend", name)
      .Add("cells", n_cells)
      .Add("bytes_per_holder", static_cast<double>(ResidentBytes() - before) / n_added);
}

}  // namespace

int32_t ShareCostPlan::n_ctx() const {
  return *std::max_element(cells.begin(), cells.end()) + 2 * FilledBackend::kBlock;
}

int32_t ShareCostPlan::n_seq_max() const { return ConfigOf(*this).n_seq_max() + 1; }

void MeasureShareCost(ModelBackend* model, const std::string& name, const ShareCostPlan& plan) {
  for (const int32_t n_cells : plan.cells) {
    MeasurePool(model, name, plan, n_cells);
    for (SeqId seq = 0; seq < model->info().n_seq_max; ++seq) model->RemoveRange(seq, 0, kToEnd);
  }
}

}  // namespace polykv
