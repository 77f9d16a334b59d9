#include "engine/steps/gate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "admission/verdict_facts.h"
#include "engine/load.h"
#include "engine/steps/materialize.h"
#include "engine/steps/retire.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;
constexpr TimeUs kSettleSlackUs = 1'000'000;  // a hold may outlast settle_max_ms by that much

// The id of the pool that governs what the request is on; kNoPool: none does.
PoolId GovernorOf(const EngineState& state, const Generation& generation) {
  if (generation.session == nullptr || state.governors.empty()) return kNoPool;
  const auto pool = state.pools.FindOrNull(generation.session->pool_id);
  const PoolNode* const governor = GoverningPoolOrNull(state, pool.get());
  return governor != nullptr ? governor->id : kNoPool;
}

// Requests that the same policy holds, in the order of arrival.
int32_t CountHeld(const EngineState& state, PoolId governor) {
  return static_cast<int32_t>(
      std::count_if(state.waiting.begin(), state.waiting.end(), [&](const auto& waiting) {
        return waiting->held_since > 0 && waiting->phase == Generation::Phase::kWaiting &&
               GovernorOf(state, *waiting) == governor;
      }));
}

bool IsFirstHeld(const EngineState& state, const Generation& generation, PoolId governor) {
  for (const auto& waiting : state.waiting) {
    if (waiting.get() == &generation) return true;
    const bool held = waiting->held_since > 0 && waiting->phase == Generation::Phase::kWaiting;
    if (held && GovernorOf(state, *waiting) == governor) return false;
  }
  return true;
}

// Seconds after which asking again makes sense: what has to settle, or a guess.
int32_t RetryAfterSeconds(const Verdict& verdict) {
  const double seconds = static_cast<double>(verdict.settle_remaining_us) / 1e6;
  return std::clamp(static_cast<int32_t>(std::ceil(seconds)), 2, 60);
}

Problem Saturated(int status, const Verdict& verdict, std::string message) {
  const int32_t retry_after_s = RetryAfterSeconds(verdict);
  Facts facts = VerdictFacts(verdict);
  facts.emplace_back("retry_after_ms", int64_t{retry_after_s} * 1'000);
  return {.status = status,
          .type = "pool_saturated",
          .message = std::move(message) + ": " + verdict.reason,
          .retry_after_s = retry_after_s,
          .facts = std::move(facts)};
}

Gate Hold(EngineState& state, Generation& generation) {
  if (generation.held_since == 0) generation.held_since = std::max<TimeUs>(1, state.now());
  return Gate::kHeld;
}

Gate Refuse(EngineState& state, Generation& generation, const Problem& problem) {
  Fail(state, generation, problem);
  return Gate::kAnswered;
}

Gate Queue(EngineState& state, Generation& generation, PoolId governor,
           const AdmissionPolicy& policy, const Verdict& verdict) {
  const bool is_new = generation.held_since == 0;
  if (is_new && policy.max_queue && CountHeld(state, governor) >= *policy.max_queue) {
    return Refuse(state, generation, Saturated(429, verdict, "the pool's queue is full"));
  }
  const TimeUs waited = is_new ? 0 : state.now() - generation.held_since;
  if (waited >= policy.queue_timeout_ms * kUsPerMs) {
    return Refuse(state, generation, Saturated(503, verdict, "waited too long for the pool"));
  }
  return Hold(state, generation);
}

}  // namespace

Gate PassGate(EngineState& state, Generation& generation, const PoolNode& pool) {
  if (state.governors.empty() || generation.session->admitted) return Gate::kOpen;
  const PoolNode* const governor = GoverningPoolOrNull(state, &pool);
  if (governor == nullptr) return Gate::kOpen;
  const AdmissionPolicy& policy = state.governors.at(governor->id).policy;
  if (policy.mode != AdmissionPolicy::Mode::kEnforced) return Gate::kOpen;
  if (!IsFirstHeld(state, generation, governor->id) && generation.held_since > 0) {
    return Gate::kHeld;
  }
  const TimeUs held = generation.held_since > 0 ? state.now() - generation.held_since : 0;
  const Applicant applicant{.overcommit = generation.request->attach.overcommit,
                            .waited_out = held >= policy.settle_max_ms * kUsPerMs + kSettleSlackUs,
                            .n_uncached = std::max(0, generation.n_prompt() - pool.length())};
  const Verdict verdict = JudgeAdmission(state, pool, applicant);
  if (verdict.can_admit) return Gate::kOpen;
  if (verdict.hold) return Hold(state, generation);
  switch (policy.on_saturation) {
    case AdmissionPolicy::OnSaturation::kWarn:
      generation.report.sessions_remaining = verdict.headroom().value_or(0);
      return Gate::kOpen;
    case AdmissionPolicy::OnSaturation::kQueue:
      return Queue(state, generation, governor->id, policy, verdict);
    case AdmissionPolicy::OnSaturation::kReject:
      break;
  }
  return Refuse(state, generation, Saturated(429, verdict, "the pool takes no new session now"));
}

void CountAdmission(EngineState& state, Session& session) {
  if (std::exchange(session.admitted, true) || state.governors.empty()) return;
  const auto pool = state.pools.FindOrNull(session.pool_id);
  const PoolNode* const governor = GoverningPoolOrNull(state, pool.get());
  if (governor == nullptr) return;
  session.governor = governor->id;
  state.governors.at(governor->id)
      .settle.Admit(session.number, GovernedMean(state, governor->id), state.now());
}

void CountTokens(EngineState& state, const Session& session, int32_t n_tokens) {
  const auto governor = state.governors.find(session.governor);
  if (governor == state.governors.end()) return;
  governor->second.settle.AddTokens(session.number, n_tokens, state.now());
}

void EndAdmission(EngineState& state, const Session& session) {
  const auto governor = state.governors.find(session.governor);
  if (governor != state.governors.end()) governor->second.settle.End(session.number);
}

void SettleAdmissions(EngineState& state) {
  for (auto& [id, governor] : state.governors) {
    governor.settle.Advance(governor.policy, GovernedMean(state, id), state.now());
  }
}

void HandleSetAdmission(EngineState& state, SetAdmission& command) {
  const auto node = state.pools.FindOrNull(command.tenant, command.pool);
  if (node == nullptr) return state.Answer(command.channel, PoolNotFound(command.pool));
  if (command.policy) {
    state.governors[node->id].policy = *command.policy;
  } else {
    state.governors.erase(node->id);
  }
  state.changed = true;
  state.Answer(command.channel, node->id);
}

void HandleAskCapacity(EngineState& state, AskCapacity& command) {
  const auto node = state.pools.FindOrNull(command.tenant, command.pool);
  if (node == nullptr) return state.Answer(command.channel, PoolNotFound(command.pool));
  const auto session = state.sessions.find({command.tenant, command.session_id});
  const bool known = session != state.sessions.end() && session->second->admitted;
  Capacity capacity{
      .verdict = JudgeAdmission(
          state, *node, {.known_session = known, .expected_tokens = command.expected_tokens}),
      .governed = LoadOf(state, *node),
      .server = LoadOfServer(state)};
  if (const PoolNode* const governor = GoverningPoolOrNull(state, node.get())) {
    const Governor& own = state.governors.at(governor->id);
    capacity.governed_by = governor->id;
    capacity.forecast = own.settle.Look(own.policy, state.now());
    capacity.n_queued = CountHeld(state, governor->id);
  }
  const ModelInfo& info = state.backend->info();
  if (!info.unified) {
    capacity.streams_total = info.n_seq_max;
    capacity.cells_per_stream = info.n_ctx_seq;
  }
  state.Answer(command.channel, capacity);
}

}  // namespace polykv
