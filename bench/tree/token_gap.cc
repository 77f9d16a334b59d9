#include "tree/token_gap.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tree/engine_rig.h"
#include "tree/filled_backend.h"
#include "tree/median.h"
#include "tree/models.h"
#include "tree/report.h"

namespace polykv {
namespace {

constexpr int32_t kStreamPrompt = 16;
constexpr int32_t kOwnTokens = 8;  // of the attaching request

EngineConfig ConfigOf(const TokenGapPlan& plan) {
  EngineConfig config;
  config.n_parallel = 2;
  config.max_pools = 2;
  config.max_sessions = 2;
  config.n_ctx_plain = plan.n_ctx();
  config.n_ctx_session = plan.n_ctx();
  return config;
}

// A stream that decodes, and a pool.
class Scene {
 public:
  Scene(LlamaBackend& model, const EngineConfig& config, int32_t n_cells, int32_t n_steps)
      : n_steps_(n_steps),
        filled_(&model, &clock_, FilledBackend::Computes::kOutputs),
        rig_(&filled_, config, [&model] { return MakeSampler(model); }),
        tokens_(SomeTokens(n_cells, 1)) {
    pool_ = rig_.Wait(rig_.PostPool({.tokens = tokens_}));
    rig_.Submit(SomeTokens(kStreamPrompt, 2), -1, {});
    for (int32_t i = 0; i < n_steps; ++i) rig_.engine().RunOneStep();
    for (int32_t i = 0; i < n_steps; ++i) usual_.push_back(Step());
  }

  struct Added {
    double us = 0;      // the longest pause while it took over the cells, without the usual one
    int n_steps = 0;    // that it took
    double end_us = 0;  // the same when it gave them up
  };
  Added Attach() {
    std::vector<Token> prompt = tokens_;
    const std::vector<Token> own = SomeTokens(kOwnTokens, 3);
    prompt.insert(prompt.end(), own.begin(), own.end());
    const auto channel = rig_.Submit(std::move(prompt), 2, {.pool = std::to_string(pool_)});
    Added added = Watch([&] { return EngineRig::Ended(*channel); });
    added.end_us = Watch([n = n_steps_]() mutable { return n-- == 0; }).us;
    return added;
  }
  Added Fork() {
    const auto channel =
        rig_.PostPool({.parent = std::to_string(pool_), .append = true, .unique = true});
    PoolId fork = kNoPool;
    Added added = Watch([&, n = n_steps_]() mutable {  // its cells may come after the answer
      const auto created = channel->Next(std::chrono::milliseconds(0));
      if (created) fork = created->value().pool_id;
      return fork != kNoPool && n-- == 0;
    });
    rig_.engine().Post(ChangePool{
        .action = ChangePool::Action::kRelease, .pool = std::to_string(fork), .force = true});
    added.end_us = Watch([n = n_steps_]() mutable { return n-- == 0; }).us;
    return added;
  }

 private:
  // The engine's time between the last Decode and the one of the next step.
  double Step() {
    const TimeUs begin = clock_.NowUs();
    rig_.engine().RunOneStep();
    const TimeUs before = filled_.began_at() - begin;
    return static_cast<double>(std::exchange(after_, clock_.NowUs() - filled_.ended_at()) + before);
  }
  template <typename Done>
  Added Watch(Done done) {
    Added added;
    do {
      added.us = std::max(added.us, Step());
      ++added.n_steps;
    } while (!done());
    added.us = std::max(0.0, added.us - Median(usual_));
    return added;
  }

  const int32_t n_steps_;
  SteadyClock clock_;
  FilledBackend filled_;
  EngineRig rig_;
  std::vector<Token> tokens_;
  std::vector<double> usual_;  // µs between two Decodes
  TimeUs after_ = 0;           // of the engine after the last Decode
  PoolId pool_ = kNoPool;
};

void ReportGap(int32_t n_cells, bool in_pieces, const char* what, const Scene::Added& added) {
  Row("gap")
      .Add("what", what)
      .Add("cells", n_cells)
      .Add("pieces", in_pieces ? "yes" : "no")
      .Add("added_us", added.us)
      .Add("steps", added.n_steps)
      .Add("end_us", added.end_us);
}

}  // namespace

int32_t TokenGapPlan::n_ctx() const {
  return *std::max_element(cells.begin(), cells.end()) + 2 * FilledBackend::kBlock;
}

int32_t TokenGapPlan::n_seq_max() const { return ConfigOf(*this).n_seq_max() + 1; }

void MeasureTokenGap(LlamaBackend& model, const TokenGapPlan& plan) {
  for (const int32_t n_cells : plan.cells) {
    for (const bool in_pieces : {false, true}) {
      Say("token gap, %d cells, %s", n_cells, in_pieces ? "in pieces" : "in one go");
      EngineConfig config = ConfigOf(plan);
      if (!in_pieces) config.share_us = std::numeric_limits<TimeUs>::max();
      Scene scene(model, config, n_cells, plan.steps);
      ReportGap(n_cells, in_pieces, "attach", scene.Attach());
      ReportGap(n_cells, in_pieces, "fork", scene.Fork());
      for (SeqId seq = 0; seq < model.info().n_seq_max; ++seq) model.RemoveRange(seq, 0, kToEnd);
    }
  }
}

}  // namespace polykv
