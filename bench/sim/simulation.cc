#include "sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "kv/fake_backend.h"

namespace polykv {
namespace {

constexpr TimeUs kSampleUs = 100'000;
constexpr TimeUs kIdleUs = 10'000;  // the clock's step while requests wait and nothing is computed
constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();
constexpr std::chrono::milliseconds kNoWait{0};

EngineConfig ConfigOf(const ServerPlan& plan) {
  EngineConfig config;
  config.n_parallel = plan.n_slots;
  config.max_pools = plan.max_pools;
  config.max_sessions = plan.max_sessions;
  config.n_ctx_plain = plan.n_cells;
  config.n_ctx_session = plan.n_cells;
  config.max_waiting = plan.max_waiting;
  config.prefill_chunk = plan.prefill_chunk;
  config.host_bytes = -1;
  return config;
}

// When the next agent of a group is sent.
class Spawner {
 public:
  explicit Spawner(const GroupPlan* plan) : plan_(plan), next_(plan->start) {}

  const GroupPlan& plan() const { return *plan_; }
  int32_t n_sent() const { return n_sent_; }
  TimeUs next() const { return n_sent_ < plan_->n_agents ? next_ : kNever; }
  // A tick: how many are sent now. `mean_tps`: what the group looks at, 0: nobody decodes.
  int32_t Tick(int32_t n_present, double mean_tps, bool can_admit, double floor) {
    next_ += std::max<TimeUs>(plan_->every, 1);
    const int32_t n_left = plan_->n_agents - n_sent_;
    int32_t n = 0;
    if (n_sent_ == 0) {
      n = plan_->n_first;
    } else if (plan_->spawn == Spawn::kRawMean) {
      n = mean_tps == 0 || mean_tps >= floor ? 1 : 0;
    } else if (plan_->spawn == Spawn::kCapacity) {
      n = can_admit ? 1 : 0;
    } else {
      n = plan_->every > 0 ? 1 : n_left;
    }
    n = std::clamp(n, 0, std::max(0, std::min(n_left, plan_->n_at_once - n_present)));
    n_sent_ += n;
    return n;
  }

 private:
  const GroupPlan* plan_;
  TimeUs next_;
  int32_t n_sent_ = 0;
};

class Simulation {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario),
        clock_(kStart),
        backend_(BackendOptions()),
        engine_(&backend_, &clock_, ConfigOf(scenario.server)),
        random_(scenario.seed) {
    for (const GroupPlan& group : scenario.groups) spawners_.emplace_back(&group);
    for (const GroupPlan& group : scenario.groups) answers_[group.name] = group.answer;
    for (const PoolPlan& pool : scenario.pools) {
      if (pool.policy) {
        outcome_.series.push_back({.pool = pool.name, .floor = FloorOf(pool.name)});
      }
    }
  }

  Outcome Run() {
    while (now() < scenario_.duration && !AllDone()) {
      MakePools();
      ApplyChanges();
      AskForSamples();
      SendAgents();
      for (const auto& agent : agents_) {
        if (agent->phase() == Agent::Phase::kPausing && agent->wakes_at() <= now()) {
          engine_.Post(agent->Ask(answers_.at(agent->group().name), now()));
          asking_.push_back(agent.get());
        }
      }
      const bool computed = engine_.RunOneStep();
      outcome_.n_steps += computed ? 1 : 0;
      Listen();
      ReadSamples();
      if (!computed) clock_.AdvanceUs(std::max<TimeUs>(1, NextEvent() - now()));
    }
    return Close();
  }

 private:
  static constexpr TimeUs kStart = 1'000'000;

  FakeBackendOptions BackendOptions() {
    const EngineConfig config = ConfigOf(scenario_.server);
    return {.n_ctx = scenario_.server.n_cells,
            .n_seq_max = config.n_seq_max(),
            .clock = &clock_,
            .step_cost = [this](const StepBatch& batch) {
              return scenario_.cost.StepUs(ContentOf(batch));
            }};
  }

  TimeUs now() const { return clock_.NowUs() - kStart; }

  const PoolPlan& PlanOf(const std::string& pool) const {
    const auto found = std::find_if(scenario_.pools.begin(), scenario_.pools.end(),
                                    [&](const PoolPlan& plan) { return plan.name == pool; });
    POLYKV_CHECK(found != scenario_.pools.end());
    return *found;
  }

  std::vector<Token> PrefixOf(const std::string& pool) const {
    if (pool.empty()) return {};
    const PoolPlan& plan = PlanOf(pool);
    std::vector<Token> tokens = PrefixOf(plan.parent);
    std::mt19937_64 random(std::hash<std::string>{}(pool));
    for (int32_t i = 0; i < plan.n_tokens; ++i) {
      tokens.push_back(1 + static_cast<Token>(random() % 255));
    }
    return tokens;
  }

  void MakePools() {
    for (; n_pools_ < scenario_.pools.size() && scenario_.pools[n_pools_].at <= now(); ++n_pools_) {
      const PoolPlan& pool = scenario_.pools[n_pools_];
      engine_.Post(CreatePool{.parent = pool.parent,
                              .tokens = PrefixOf(pool.name),
                              .name = pool.name,
                              .pin = true,
                              .wait = false});
      if (pool.policy) engine_.Post(SetAdmission{.pool = pool.name, .policy = pool.policy});
    }
  }

  void ApplyChanges() {
    for (; n_changes_ < scenario_.changes.size() && scenario_.changes[n_changes_].at <= now();
         ++n_changes_) {
      const Change& change = scenario_.changes[n_changes_];
      answers_.at(change.group) = change.answer;
    }
  }

  void SendAgents() {
    for (Spawner& spawner : spawners_) {
      while (spawner.next() <= now()) {
        const GroupPlan& group = spawner.plan();
        const double mean = RawMean(group);
        const double floor = group.pool.empty() ? 0 : FloorOf(group.pool);
        const int32_t n_present = CountPresent(group);
        const int32_t n_first = spawner.n_sent();
        const int32_t n = spawner.Tick(n_present, mean, can_admit_[group.pool], floor);
        outcome_.ticks.push_back({now(), group.name, n_present, mean, n});
        for (int32_t i = 0; i < n; ++i) {
          agents_.push_back(std::make_unique<Agent>(&group,
                                                    group.name + "-" + std::to_string(n_first + i),
                                                    PrefixOf(group.pool), random_(), now()));
        }
      }
    }
  }

  double FloorOf(const std::string& pool) const {
    for (std::string name = pool; !name.empty(); name = PlanOf(name).parent) {
      const PoolPlan& plan = PlanOf(name);
      if (plan.floor) return *plan.floor;
      if (plan.policy) return plan.policy->target_tps_per_session;
    }
    return 0;
  }

  // What the group's agents get, those included that have just come; 0: none has a slot.
  double RawMean(const GroupPlan& group) const {
    double sum = 0;
    int32_t n = 0;
    for (const Agent* agent : asking_) {
      if (&agent->group() != &group || !agent->started()) continue;
      sum += agent->smoothed_tps();
      ++n;
    }
    return n > 0 ? sum / n : 0;
  }

  int32_t CountPresent(const GroupPlan& group) const {
    return static_cast<int32_t>(
        std::count_if(agents_.begin(), agents_.end(), [&](const auto& agent) {
          return &agent->group() == &group && agent->phase() != Agent::Phase::kDone;
        }));
  }

  void Listen() {
    for (Agent* agent : asking_) agent->Listen(now());
    std::erase_if(asking_,
                  [](const Agent* agent) { return agent->phase() != Agent::Phase::kAsking; });
    for (auto& agent : agents_) {
      if (agent->phase() == Agent::Phase::kDone) Retire(*agent);
    }
    std::erase_if(agents_, [](const auto& agent) { return agent->phase() == Agent::Phase::kDone; });
  }

  void Retire(const Agent& agent) {
    outcome_.clients.push_back({.group = agent.group().name,
                                .sent = agent.sent_at(),
                                .done = agent.done_at(),
                                .n_refused = agent.n_refused(),
                                .turns = agent.turns()});
  }

  void AskForSamples() {
    if (now() < next_sample_) return;
    next_sample_ = now() - now() % kSampleUs + kSampleUs;
    for (const Series& series : outcome_.series) {
      if (PlanOf(series.pool).at > now()) continue;
      AskCapacity command{.pool = series.pool};
      asked_.push_back({now(), series.pool, command.channel});
      engine_.Post(std::move(command));
    }
  }

  void ReadSamples() {
    for (const Asked& asked : asked_) {
      const auto answer = asked.channel->Next(kNoWait);
      POLYKV_CHECK(answer && answer->ok());
      const Capacity& capacity = answer->value();
      can_admit_[asked.pool] = capacity.verdict.can_admit;
      const auto series = std::find_if(outcome_.series.begin(), outcome_.series.end(),
                                       [&](const Series& one) { return one.pool == asked.pool; });
      series->samples.push_back({.at = asked.at,
                                 .mean_tps = capacity.governed.mean_tps,
                                 .n_decoding = capacity.server.n_decoding,
                                 .n_attached = capacity.governed.n_attached,
                                 .n_queued = capacity.n_queued,
                                 .settling = capacity.verdict.settling,
                                 .projected = capacity.verdict.projected_mean_tps});
    }
    asked_.clear();
  }

  bool AllDone() const {
    return agents_.empty() && std::all_of(spawners_.begin(), spawners_.end(),
                                          [](const Spawner& one) { return one.next() == kNever; });
  }

  // Nothing happens before it.
  TimeUs NextEvent() const {
    TimeUs next = std::min(scenario_.duration, next_sample_);
    if (!asking_.empty()) next = std::min(next, now() + kIdleUs);
    for (const Spawner& spawner : spawners_) next = std::min(next, spawner.next());
    for (const auto& agent : agents_) {
      if (agent->phase() == Agent::Phase::kPausing) next = std::min(next, agent->wakes_at());
    }
    return next;
  }

  Outcome Close() {
    for (const auto& agent : agents_) Retire(*agent);
    outcome_.ended = now();
    outcome_.n_tokens = backend_.n_decoded_tokens();
    outcome_.n_parked = static_cast<int32_t>(engine_.Snapshot()->counters.parked);
    return std::move(outcome_);
  }

  struct Asked {
    TimeUs at;
    std::string pool;
    std::shared_ptr<Channel<Result<Capacity>>> channel;
  };

  const Scenario& scenario_;
  ManualClock clock_;
  FakeBackend backend_;
  Engine engine_;
  std::mt19937_64 random_;
  std::vector<Spawner> spawners_;
  std::map<std::string, Range> answers_;  // by group
  std::vector<std::unique_ptr<Agent>> agents_;
  std::vector<Agent*> asking_;
  size_t n_pools_ = 0;
  size_t n_changes_ = 0;
  TimeUs next_sample_ = 0;
  std::vector<Asked> asked_;
  std::map<std::string, bool> can_admit_;  // by pool
  Outcome outcome_;
};

}  // namespace

Outcome Simulate(const Scenario& scenario) { return Simulation(scenario).Run(); }

}  // namespace polykv
