#include "tree/engine_rig.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace polykv {
namespace {

constexpr std::chrono::milliseconds kNoWait{0};

[[noreturn]] void Fail(const Problem& problem) {
  std::fprintf(stderr, "refused: %s\n", problem.message.c_str());
  std::exit(1);
}

}  // namespace

std::vector<Token> SomeTokens(int32_t n, uint64_t seed) {
  std::vector<Token> tokens;
  tokens.reserve(static_cast<size_t>(n));
  for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
    tokens.push_back(static_cast<Token>(32 + ((seed + 1) * (i + 1) + seed * i / 7) % 200));
  }
  return tokens;
}

EngineRig::PoolChannel EngineRig::PostPool(CreatePool command) {
  PoolChannel channel = command.channel;
  engine_.Post(std::move(command));
  return channel;
}

PoolId EngineRig::Wait(const PoolChannel& channel) {
  while (true) {
    engine_.RunOneStep();
    const auto created = channel->Next(kNoWait);
    if (!created) continue;
    if (!created->ok()) Fail(created->problem());
    return created->value().pool_id;
  }
}

void EngineRig::Release(PoolId pool) {
  engine_.Post(ChangePool{
      .action = ChangePool::Action::kRelease, .pool = std::to_string(pool), .force = true});
  engine_.RunOneStep();
}

std::shared_ptr<GenerationChannel> EngineRig::Submit(std::vector<Token> prompt, int32_t n_predict,
                                                     const AttachSpec& attach) {
  auto request = std::make_unique<GenerationRequest>();
  request->sampler = make_sampler_();
  request->sampler->AcceptPrompt(prompt);
  request->prompt = std::move(prompt);
  request->n_predict = n_predict;
  request->attach = attach;
  auto channel = request->channel;
  engine_.Post(SubmitGeneration{std::move(request)});
  return channel;
}

bool EngineRig::Ended(GenerationChannel& channel) {
  while (const auto message = channel.Next(kNoWait)) {
    if (const auto* problem = std::get_if<Problem>(&message->event)) Fail(*problem);
    if (std::holds_alternative<Finished>(message->event)) return true;
  }
  return false;
}

}  // namespace polykv
