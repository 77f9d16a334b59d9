// Measures the pool tree; see bench/tree.py, which runs it.
#include <cstdio>
#include <string>
#include <vector>

#include "tree/idle_cells.h"
#include "tree/meter_cost.h"
#include "tree/models.h"
#include "tree/share_cost.h"
#include "tree/step_cost.h"
#include "tree/token_gap.h"

namespace polykv {
namespace {

void RunShare(const std::string& model, bool quick) {
  ShareCostPlan plan;
  if (quick) plan = {.cells = {2'048, 8'192}, .holders = {1, 16}, .runs = 3};
  const ModelOptions options{.path = model, .n_ctx = plan.n_ctx(), .n_seq_max = plan.n_seq_max()};
  MeasureShareCost(MakeFake(options).get(), "fake", plan);
  MeasureShareCost(LoadModelOrExit(options).get(), "llama", plan);
}

void RunGap(const std::string& model, bool quick) {
  TokenGapPlan plan;
  if (quick) plan = {.cells = {32'768}, .steps = 4};
  const auto backend =
      LoadModelOrExit({.path = model, .n_ctx = plan.n_ctx(), .n_seq_max = plan.n_seq_max()});
  MeasureTokenGap(*backend, plan);
}

void RunStep(const std::string& /*model*/, bool quick) {
  StepCostPlan plan;
  if (quick) plan = {.rounds = 2, .round_ms = 50};
  MeasureStepCost(plan);
}

void RunMeter(const std::string& /*model*/, bool quick) {
  MeterCostPlan plan;
  if (quick) plan = {.tokens = 100'000, .rounds = 3};
  MeasureMeterCost(plan);
}

void RunIdle(const std::string& model, bool quick) {
  IdleCellsPlan plan;
  if (quick) plan = {.cells = {0, 4'096}, .steps = 5};
  MeasureIdleCells(model, plan);
}

struct Part {
  const char* name;
  void (*run)(const std::string& model, bool quick);
};
constexpr Part kParts[] = {{"share", &RunShare},
                           {"gap", &RunGap},
                           {"step", &RunStep},
                           {"meter", &RunMeter},
                           {"idle", &RunIdle}};

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) {
    std::fputs("usage: polykv-bench-tree MODEL full|quick [share] [gap] [step] [meter] [idle]\n",
               stderr);
    return 2;
  }
  const bool quick = arguments[1] == "quick";
  for (const Part& part : kParts) {
    bool wanted = arguments.size() == 2;
    for (size_t i = 2; i < arguments.size(); ++i) wanted |= arguments[i] == part.name;
    if (wanted) part.run(arguments[0], quick);
  }
  return 0;
}

}  // namespace
}  // namespace polykv

int main(int argc, char** argv) { return polykv::Main({argv + 1, argv + argc}); }
