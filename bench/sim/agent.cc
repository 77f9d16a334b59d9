#include "sim/agent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace polykv {
namespace {

constexpr Token kSaid = 100;
constexpr double kSmoothUs = 2e6;  // time constant: the seed's section 14
constexpr TimeUs kUsPerMs = 1'000;

// Always says the same token.
class FixedSampler final : public Sampler {
 public:
  void AcceptPrompt(std::span<const Token>) override {}
  SampledToken Sample(int32_t) override { return {.token = kSaid}; }
  std::vector<SampledToken> SampleAlong(int32_t index, std::span<const Token>) override {
    return {Sample(index)};
  }
  void EndReasoning() override {}
};

}  // namespace

void SmoothedRate::AddToken(TimeUs now) {
  if (last_ > 0 && now > last_) {
    const auto gap_us = static_cast<double>(now - last_);
    tps_ += (1 - std::exp(-gap_us / kSmoothUs)) * (1e6 / gap_us - tps_);
  }
  last_ = now;
}

Agent::Agent(const GroupPlan* group, std::string name, std::vector<Token> prefix, uint64_t seed,
             TimeUs now)
    : group_(group),
      name_(std::move(name)),
      sent_at_(now),
      random_(seed),
      wakes_at_(now),
      conversation_(std::move(prefix)) {}

int64_t Agent::Draw(const Range& range) {
  return range.low +
         static_cast<int64_t>(random_() % static_cast<uint64_t>(range.high - range.low + 1));
}

void Agent::Add(int64_t n_tokens) {
  for (int64_t i = 0; i < n_tokens; ++i) {
    conversation_.push_back(1 + static_cast<Token>(random_() % 255));
  }
}

SubmitGeneration Agent::Ask(const Range& answer, TimeUs now) {
  POLYKV_CHECK(phase_ == Phase::kPausing);
  if (!std::exchange(again_, false)) {
    Add(Draw(group_->prompt));
    n_answer_ = Draw(answer);
    turn_ = {.asked = now};
  }
  auto request = std::make_unique<GenerationRequest>();
  request->sampler = std::make_unique<FixedSampler>();
  request->prompt = conversation_;
  request->n_predict = static_cast<int32_t>(n_answer_);
  request->stream = true;
  if (!group_->pool.empty()) {
    request->attach.pool = group_->pool;
    request->attach.session_id = name_;
    request->attach.session_end = static_cast<int32_t>(turns_.size()) + 1 == group_->n_turns;
  }
  channel_ = request->channel;
  phase_ = Phase::kAsking;
  started_ = false;
  return {std::move(request)};
}

void Agent::Listen(TimeUs now) {
  while (phase_ == Phase::kAsking) {
    const auto message = channel_->Next(std::chrono::milliseconds(0));
    if (!message) return;
    if (std::holds_alternative<Started>(message->event)) {
      started_ = true;
      admitted_ = true;
    } else if (std::holds_alternative<Piece>(message->event)) {
      if (turn_.n_tokens++ == 0) turn_.first = now;
      turn_.last = now;
      rate_.AddToken(now);
    } else if (std::holds_alternative<Finished>(message->event)) {
      EndTurn(now);
    } else if (const auto* problem = std::get_if<Problem>(&message->event)) {
      TryLater(*problem, now);
    }
  }
}

void Agent::EndTurn(TimeUs now) {
  conversation_.insert(conversation_.end(), static_cast<size_t>(turn_.n_tokens), kSaid);
  turns_.push_back(turn_);
  rate_.Pause();
  if (static_cast<int32_t>(turns_.size()) == group_->n_turns) {
    phase_ = Phase::kDone;
    done_at_ = now;
    conversation_ = {};
    return;
  }
  phase_ = Phase::kPausing;
  wakes_at_ = now + Draw(group_->gap_ms) * kUsPerMs;
}

void Agent::TryLater(const Problem& problem, TimeUs now) {
  ++n_refused_;
  again_ = true;
  turn_.n_tokens = 0;
  phase_ = Phase::kPausing;
  wakes_at_ = now + std::max(1, problem.retry_after_s.value_or(5)) * 1'000 * kUsPerMs;
}

}  // namespace polykv
