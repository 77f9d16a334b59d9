#include "tree/step_cost.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <thread>

#include "tree/engine_rig.h"
#include "tree/null_backend.h"
#include "tree/report.h"

namespace polykv {
namespace {

constexpr int32_t kStreams = 4;
constexpr int32_t kContext = 1 << 30;
constexpr int32_t kTokens = 64;  // of each pool and session
constexpr int32_t kWarmUpSteps = 100;
constexpr int32_t kStepsByHand = 2'000;
constexpr double kNsPerUs = 1'000;

EngineConfig ConfigOf(int32_t n_pools, int32_t n_sessions) {
  EngineConfig config;
  config.n_parallel = kStreams;
  config.max_pools = std::max(1, n_pools);
  config.max_sessions = n_sessions;
  config.n_ctx_plain = kContext;
  config.n_ctx_session = kContext;
  return config;
}

double NsPerStep(TimeUs us, int64_t n_steps) {
  return static_cast<double>(us) * kNsPerUs / static_cast<double>(n_steps);
}

// An engine with idle pools and sessions in which four streams decode.
class Crowd {
 public:
  Crowd(int32_t n_pools, int32_t n_sessions)
      : backend_(kContext, ConfigOf(n_pools, n_sessions).n_seq_max()),
        rig_(&backend_, ConfigOf(n_pools, n_sessions)) {
    for (int32_t i = 0; i < n_pools; ++i) {
      rig_.Wait(rig_.PostPool({.tokens = SomeTokens(kTokens, static_cast<uint64_t>(i))}));
    }
    for (int32_t i = 0; i < n_sessions; ++i) {
      const auto channel = rig_.Submit(SomeTokens(kTokens, static_cast<uint64_t>(i)), 1,
                                       {.session_id = "session-" + std::to_string(i)});
      while (!EngineRig::Ended(*channel)) rig_.engine().RunOneStep();
    }
    for (int32_t i = 0; i < kStreams; ++i) rig_.Submit(SomeTokens(kTokens, 1), -1, {});
    for (int32_t i = 0; i < kWarmUpSteps; ++i) rig_.engine().RunOneStep();
  }

  double NsByHand() {
    const TimeUs begin = rig_.now();
    for (int32_t i = 0; i < kStepsByHand; ++i) rig_.engine().RunOneStep();
    return NsPerStep(rig_.now() - begin, kStepsByHand);
  }

  double NsOnThread(int32_t ms) {  // once, at last
    rig_.engine().Start();
    const TimeUs begin = rig_.now();
    const int64_t n_before = backend_.n_decodes();
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    const int64_t n_steps = backend_.n_decodes() - n_before;
    return NsPerStep(rig_.now() - begin, n_steps);
  }

 private:
  NullBackend backend_;
  EngineRig rig_;
};

struct Figures {
  int32_t n_pools = 0;
  int32_t n_sessions = 0;
  double ns_by_hand = std::numeric_limits<double>::max();
  double ns_on_thread = std::numeric_limits<double>::max();
};

std::vector<Figures> EmptyFigures(const StepCostPlan& plan) {
  std::vector<Figures> results;
  for (const int32_t n_sessions : plan.sessions) {
    for (const int32_t n_pools : plan.pools) results.push_back({n_pools, n_sessions});
  }
  return results;
}

}  // namespace

void MeasureStepCost(const StepCostPlan& plan) {
  std::vector<Figures> results = EmptyFigures(plan);
  for (int32_t round = 0; round < plan.rounds; ++round) {
    Say("steps, round %d of %d", round + 1, plan.rounds);
    for (Figures& result : results) {
      Crowd crowd(result.n_pools, result.n_sessions);
      result.ns_by_hand = std::min(result.ns_by_hand, crowd.NsByHand());
      result.ns_on_thread = std::min(result.ns_on_thread, crowd.NsOnThread(plan.round_ms));
    }
  }
  for (const Figures& result : results) {
    Row("step")
        .Add("pools", result.n_pools)
        .Add("sessions", result.n_sessions)
        .Add("on_thread_ns", result.ns_on_thread)
        .Add("by_hand_ns", result.ns_by_hand);
  }
}

}  // namespace polykv
