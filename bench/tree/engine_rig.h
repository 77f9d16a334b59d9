// An engine driven by hand, with the few requests that the measurements make.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"

namespace polykv {

// Always says the same token.
class FixedSampler final : public Sampler {
 public:
  static constexpr Token kToken = 100;
  void AcceptPrompt(std::span<const Token>) override {}
  SampledToken Sample(int32_t) override { return {.token = kToken}; }
  std::vector<SampledToken> SampleAlong(int32_t index, std::span<const Token>) override {
    return {Sample(index)};
  }
  void EndReasoning() override {}
};

// `n` tokens that depend on `seed`, each known to every model.
std::vector<Token> SomeTokens(int32_t n, uint64_t seed);

using SamplerMaker = std::function<std::unique_ptr<Sampler>()>;

class EngineRig {
 public:
  EngineRig(ModelBackend* backend, const EngineConfig& config,
            SamplerMaker make_sampler = &std::make_unique<FixedSampler>)
      : make_sampler_(std::move(make_sampler)), engine_(backend, &clock_, config) {}

  Engine& engine() { return engine_; }
  TimeUs now() const { return clock_.NowUs(); }

  using PoolChannel = std::shared_ptr<Channel<Result<PoolCreated>>>;
  PoolChannel PostPool(CreatePool command);
  // Steps until it is there; ends the program if it is refused.
  PoolId Wait(const PoolChannel& channel);
  void Release(PoolId pool);  // at once

  // `n_predict` tokens, -1: without end.
  std::shared_ptr<GenerationChannel> Submit(std::vector<Token> prompt, int32_t n_predict,
                                            const AttachSpec& attach);
  // Whether the request has ended; ends the program if it has failed.
  static bool Ended(GenerationChannel& channel);

 private:
  const SamplerMaker make_sampler_;
  SteadyClock clock_;
  Engine engine_;
};

}  // namespace polykv
