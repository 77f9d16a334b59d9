#include "engine/steps/gate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "admission/verdict_facts.h"
#include "engine/load.h"
#include "engine/record.h"
#include "engine/steps/materialize.h"
#include "engine/steps/retire.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;
constexpr TimeUs kSettleSlackUs = 1'000'000;  // a hold may outlast settle_max_ms by that much
// A held request is judged that often: a verdict walks all sessions, and steps are short.
constexpr TimeUs kJudgeUs = 20'000;

// The id of the pool that governs what the request is on; kNoPool: none does.
PoolId GovernorOf(const EngineState& state, const Generation& generation) {
  if (generation.session == nullptr || state.governors.empty()) return kNoPool;
  const PoolNode* const governor = GoverningPoolOrNull(state, generation.session->pool_id);
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

SettleTracker::Rate RateOf(const EngineState& state, PoolId governor, const SettleTracker& settle) {
  return {.mean_tps = GovernedMean(state, governor, settle.level_since()),
          .n_running = static_cast<double>(state.running.size())};
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

Facts DecisionFacts(std::string_view decision, const Verdict& verdict) {
  Facts facts = VerdictFacts(verdict);
  facts.emplace(facts.begin(), "decision", std::string(decision));
  return facts;
}

void Tell(EngineState& state, const Generation& generation, std::string_view decision,
          Facts facts) {
  Record(state, EventKind::kAdmission, generation, std::move(facts));
  const auto pool = state.pools.FindOrNull(generation.session->pool_id);
  if (pool != nullptr) ++pool->decisions[decision];
}

Gate Hold(EngineState& state, Generation& generation, std::string_view decision,
          const Verdict& verdict) {
  if (generation.held_since == 0) generation.held_since = std::max<TimeUs>(1, state.now());
  if (std::exchange(generation.held_as, decision) != decision) {
    Tell(state, generation, decision, DecisionFacts(decision, verdict));
  }
  return Gate::kHeld;
}

Gate Refuse(EngineState& state, Generation& generation, std::string_view decision,
            const Verdict& verdict, const Problem& problem) {
  Tell(state, generation, decision, DecisionFacts(decision, verdict));
  Fail(state, generation, problem);
  return Gate::kAnswered;
}

// The request may start; told when it does.
Gate Open(Generation& generation, std::string_view decision, const Verdict& verdict) {
  generation.admitted_as = decision;
  generation.admission = DecisionFacts(decision, verdict);
  return Gate::kOpen;
}

std::string_view AdmitDecision(const Verdict& verdict) {
  if (verdict.guaranteed) return "guaranteed";
  return verdict.reason == "overcommit" ? "overcommit" : "admit";
}

Gate Queue(EngineState& state, Generation& generation, PoolId governor,
           const AdmissionPolicy& policy, const Verdict& verdict) {
  const bool is_new = generation.held_since == 0;
  if (is_new && policy.max_queue && CountHeld(state, governor) >= *policy.max_queue) {
    return Refuse(state, generation, "reject", verdict,
                  Saturated(429, verdict, "the pool's queue is full"));
  }
  const TimeUs waited = is_new ? 0 : state.now() - generation.held_since;
  if (waited >= policy.queue_timeout_ms * kUsPerMs) {
    return Refuse(state, generation, "timeout", verdict,
                  Saturated(503, verdict, "waited too long for the pool"));
  }
  return Hold(state, generation, "queue", verdict);
}

Event AboutPool(const EngineState& state, EventKind kind, PoolId id, Facts facts) {
  const auto pool = state.pools.FindOrNull(id);
  return {.kind = kind,
          .tenant = pool != nullptr ? pool->origin.tenant : kEverybody,
          .pool_id = id,
          .facts = std::move(facts)};
}

void RecordSettled(EngineState& state, PoolId governor, const Settled& settled) {
  Event event = AboutPool(state, EventKind::kSettleEnded, governor,
                          {{"mean_before", settled.mean_before},
                           {"mean_tps", settled.mean_tps},
                           {"n_tokens", settled.n_tokens},
                           {"drop", FactOrNull(settled.drop)}});
  for (const auto& [key, session] : state.sessions) {
    if (session->number == settled.key) event.session_id = key.id;
  }
  state.Record(std::move(event));
}

// Between the two bounds the floor counts as it did before, or a mean about the target would be
// told again and again.
void WatchFloor(EngineState& state, PoolId id, Governor& governor, double mean_tps) {
  constexpr double kBroken = 0.95;  // of the target
  const double target = governor.policy.target_tps_per_session;
  const bool broken = mean_tps > 0 && mean_tps < (governor.floor_broken ? 1 : kBroken) * target;
  if (std::exchange(governor.floor_broken, broken) == broken) return;
  state.Record(AboutPool(state, broken ? EventKind::kFloorBroken : EventKind::kFloorHeld, id,
                         {{"mean_tps", mean_tps}, {"target", target}}));
}

}  // namespace

std::optional<int32_t> MostTokens(const EngineState& state, const GenerationRequest& request) {
  if (state.governors.empty()) return std::nullopt;
  const AttachSpec& attach = request.attach;
  auto pool = state.pools.FindOrNull(request.tenant, attach.pool);
  const auto session = state.sessions.find({request.tenant, attach.session_id});
  if (pool == nullptr && session != state.sessions.end()) {
    pool = state.pools.FindOrNull(session->second->pool_id);
  }
  const PoolNode* const governor = GoverningPoolOrNull(state, pool.get());
  if (governor == nullptr) return std::nullopt;
  const AdmissionPolicy& policy = state.governors.at(governor->id).policy;
  const bool enforced = policy.mode == AdmissionPolicy::Mode::kEnforced;
  return enforced ? policy.max_tokens_per_request : std::nullopt;
}

Gate PassGate(EngineState& state, Generation& generation, const PoolNode& pool) {
  if (state.governors.empty() || generation.session->admitted) return Gate::kOpen;
  const PoolNode* const governor = GoverningPoolOrNull(state, &pool);
  if (governor == nullptr) return Gate::kOpen;
  Governor& own = state.governors.at(governor->id);
  const AdmissionPolicy& policy = own.policy;
  if (policy.mode != AdmissionPolicy::Mode::kEnforced) return Gate::kOpen;
  const bool due = state.now() >= own.judge_at;
  if (generation.held_since > 0 && !(due && IsFirstHeld(state, generation, governor->id))) {
    return Gate::kHeld;
  }
  if (due) own.judge_at = state.now() + kJudgeUs;
  const TimeUs held = generation.held_since > 0 ? state.now() - generation.held_since : 0;
  const bool queues = policy.on_saturation == AdmissionPolicy::OnSaturation::kQueue;
  const Applicant applicant{
      .overcommit = generation.request->attach.overcommit,
      .waited_out = !queues && held >= policy.settle_max_ms * kUsPerMs + kSettleSlackUs,
      .n_uncached = std::max(0, generation.n_prompt() - pool.length())};
  const Verdict verdict = JudgeAdmission(state, pool, PictureFor(state, pool), applicant);
  if (verdict.can_admit) return Open(generation, AdmitDecision(verdict), verdict);
  if (verdict.hold) return Hold(state, generation, "hold", verdict);
  switch (policy.on_saturation) {
    case AdmissionPolicy::OnSaturation::kWarn:
      generation.report.sessions_remaining = verdict.headroom().value_or(0);
      return Open(generation, "warn", verdict);
    case AdmissionPolicy::OnSaturation::kQueue:
      return Queue(state, generation, governor->id, policy, verdict);
    case AdmissionPolicy::OnSaturation::kReject:
      break;
  }
  return Refuse(state, generation, "reject", verdict,
                Saturated(429, verdict, "the pool takes no new session now"));
}

void CountAdmission(EngineState& state, const Generation& generation) {
  Session& session = *generation.session;
  if (std::exchange(session.admitted, true) || state.governors.empty()) return;
  const auto pool = state.pools.FindOrNull(session.pool_id);
  const PoolNode* const governor = GoverningPoolOrNull(state, pool.get());
  if (governor == nullptr) return;
  session.governor = governor->id;
  SettleTracker& settle = state.governors.at(governor->id).settle;
  const SettleTracker::Rate rate = RateOf(state, governor->id, settle);
  settle.Admit(session.number, rate, state.now());
  if (!generation.admission.empty()) {
    Tell(state, generation, generation.admitted_as, generation.admission);
  }
  Record(state, EventKind::kSettleBegun, session, {{"mean_tps", rate.mean_tps}});
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
    const SettleTracker::Rate rate = RateOf(state, id, governor.settle);
    for (const Settled& settled : governor.settle.Advance(governor.policy, rate, state.now())) {
      RecordSettled(state, id, settled);
    }
    WatchFloor(state, id, governor, GovernedMean(state, id));
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
  std::optional<double> target;
  if (command.policy) target = command.policy->target_tps_per_session;
  Record(state, EventKind::kPolicyChanged, *node, {{"target_tps_per_session", FactOrNull(target)}});
  state.changed = true;
  state.Answer(command.channel, node->id);
}

void HandleAskCapacity(EngineState& state, AskCapacity& command) {
  const auto node = state.pools.FindOrNull(command.tenant, command.pool);
  if (node == nullptr) return state.Answer(command.channel, PoolNotFound(command.pool));
  const auto session = state.sessions.find({command.tenant, command.session_id});
  const bool known = session != state.sessions.end() && session->second->admitted;
  const LoadPicture picture = PictureFor(state, *node);
  Capacity capacity{.verdict = JudgeAdmission(
                        state, *node, picture,
                        {.known_session = known, .expected_tokens = command.expected_tokens}),
                    .governed = picture.governed,
                    .server = picture.server};
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
