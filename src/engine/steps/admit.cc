#include "engine/steps/admit.h"

#include <algorithm>

#include "engine/record.h"
#include "engine/steps/gate.h"
#include "engine/steps/idle_tier.h"
#include "engine/steps/materialize.h"
#include "engine/steps/park.h"
#include "engine/steps/pressure.h"
#include "engine/steps/prompt_cache.h"
#include "engine/steps/retire.h"
#include "engine/steps/reuse.h"
#include "engine/steps/slot_choice.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;

enum class Outcome {
  kStarted,
  kAnswered,  // has ended already
  kLater,     // waits for its pool, session or slot; others may pass
  kNoRoom,    // waits for cells or several slots; nobody passes, or it might wait for ever
};

// Why the server cannot take the request at all; nothing if it can.
std::optional<Problem> Refusal(const EngineState& state, const Generation& generation) {
  if (auto refused = RefuseNewWork(state)) return refused;
  if (!state.backend->info().generates) {
    return Problem{.status = 500,
                   .type = "server_error",
                   .message = "the current context does not support logits computation. skipping"};
  }
  if (generation.n_prompt() >= generation.n_ctx) {
    return ExceedsContext(generation.n_prompt(), generation.n_ctx);
  }
  const AttachSpec& attach = generation.request->attach;
  const auto n_slots = static_cast<int32_t>(state.slots.size());
  if (attach.shared_pool_slot.value_or(0) >= n_slots) {
    return InvalidRequest("shared_pool_slot is " + std::to_string(*attach.shared_pool_slot) +
                          ", but there are " + std::to_string(n_slots) + " slots (--parallel)");
  }
  if (attach.error_on_miss && !attach.pool.empty() &&
      state.pools.FindOrNull(generation.request->tenant, attach.pool) == nullptr) {
    return PoolNotFound(attach.pool);
  }
  if (generation.n_choices > state.config.n_parallel) {
    return InvalidRequest(std::to_string(generation.n_choices) +
                          " choices need as many slots, and there are " +
                          std::to_string(state.config.n_parallel) + " (--parallel)");
  }
  return std::nullopt;
}

std::shared_ptr<Session> OpenSession(EngineState& state, const GenerationRequest& request) {
  const AttachSpec& attach = request.attach;
  const bool one_request = attach.session_id.empty();
  const SessionId id = one_request ? "request-" + std::to_string(state.config.boot_id) + "-" +
                                         std::to_string(state.next_session_number)
                                   : attach.session_id;
  const SessionKey key{request.tenant, id};
  std::shared_ptr<Session>& session = state.sessions[key];
  const bool is_new = session == nullptr;
  if (is_new) {
    session = std::make_shared<Session>();
    session->key = key;
    session->number = static_cast<int64_t>(state.next_session_number++);
    session->one_request = one_request;
  }
  if (const auto pool = state.pools.FindOrNull(request.tenant, attach.pool)) {
    session->pool_id = pool->id;
  }
  if (is_new) {
    Record(state, EventKind::kSessionBegun, *session, {{"one_request", one_request}});
  }
  ++session->n_waiting;
  return session;
}

// A request without a prompt takes a seat, leaves its cells as they are and ends at once, as
// llama-server has it; it is told how many they are, so another tenant's go.
void EndEmpty(EngineState& state, Generation& generation, Slot& slot) {
  generation.slot_id = slot.id;
  generation.sequence = &slot.own;
  generation.timings.t_start = state.now();
  slot.running = &generation;
  if (slot.own.origin.tenant != generation.request->tenant) state.cache.Clear(slot.own);
  SaveIdleSlots(state);
  Finish(state, generation, /*truncated=*/false, "");
}

// Are there cells for the rest of the prompt and a first stretch of decoding?
Outcome CheckRoom(EngineState& state, Generation& generation, const Sequence& sequence,
                  Reuse& reuse) {
  const int32_t n_uncached = generation.n_prompt() - reuse.match.n_reused();
  int32_t needed = n_uncached + reuse.n_loaded + FirstStretch(state.config, generation);
  for (const auto& choice : generation.choices) needed += FirstStretch(state.config, *choice);
  const int32_t kept = std::max(0, reuse.match.n_own - sequence.lease.length());
  const int32_t given_up = sequence.n_private() - std::min(kept, sequence.n_private());
  const auto available = [&] {
    return state.cache.free() + given_up - ReservedCells(state) +
           ReclaimableCells(state, &sequence, reuse.pool.get());
  };
  if (needed <= available()) return Outcome::kStarted;
  if (!state.running.empty() || !state.materializing.empty() || !state.embeddings.empty()) {
    return Outcome::kNoRoom;
  }
  while (needed > available() && ReclaimOnce(state, &sequence, reuse.pool.get())) {
  }
  if (n_uncached + reuse.n_loaded + 1 <= available()) return Outcome::kStarted;
  if (reuse.from_host) {
    state.host.Drop(HostKind::kSession, generation.session->number);
    MatchPrompt(state, generation, sequence, &reuse);
    return CheckRoom(state, generation, sequence, reuse);
  }
  Fail(state, generation,
       {.status = 503,
        .type = "no_free_cells",
        .message = "the request needs " + std::to_string(n_uncached + 1) + " cells and " +
                   std::to_string(std::max(0, available())) +
                   " can be had beside what is pinned; release a pool or end sessions",
        .retry_after_s = 5});
  return Outcome::kAnswered;
}

// A sequence for the session, taken from the longest idle one if need be.
bool AcquireSequence(EngineState& state, Session& session) {
  if (session.sequence.id != kNoSeq) return true;
  auto seq = state.session_seqs.Allocate();
  if (!seq) {
    Session* oldest = nullptr;
    for (const auto& [id, other] : state.sessions) {
      if (other->running || other->sequence.id == kNoSeq) continue;
      if (oldest == nullptr || other->last_active < oldest->last_active) oldest = other.get();
    }
    if (oldest == nullptr) return false;
    DetachSession(state, *oldest);
    seq = state.session_seqs.Allocate();
  }
  session.sequence.id = *seq;
  return true;
}

void Start(EngineState& state, Generation& generation, Slot& slot, Sequence& sequence,
           Reuse& reuse) {
  const TimeUs now = state.now();
  if (generation.session != nullptr) {
    Session& session = *generation.session;
    --session.n_waiting;
    CountAdmission(state, generation);
    session.running = true;
    session.last_active = now;
    generation.report.session_id = session.key.id;
  }
  slot.running = &generation;
  generation.slot_id = slot.id;
  generation.sequence = &sequence;
  generation.phase = Generation::Phase::kPrefill;
  const int32_t n_reused = TakePrefix(state, generation, sequence, reuse);
  if (generation.session != nullptr) ForgetCooled(state, *generation.session);
  sequence.origin = OriginOf(state, generation);
  AttachReport& report = generation.report;
  report.pool_id = reuse.pool != nullptr ? reuse.pool->id : kNoPool;
  report.cache_n = n_reused;
  report.ctx_used = generation.n_prompt();
  report.ctx_total = generation.n_ctx;
  report.miss_reason = reuse.miss_reason;
  if (reuse.pool != nullptr && reuse.match.n_common < reuse.pool->length()) {
    report.prefix_break_at = reuse.match.n_common;
    if (reuse.match.n_common == 0) report.miss_reason = "diverged";
  }
  generation.stretch = {n_reused, n_reused};
  generation.timings.t_start = now;
  generation.timings.n_prompt_cached = n_reused;
  generation.timings.n_prompt_processed = 0;
  CountReuse(state, generation, reuse.pool.get(), n_reused);
  Record(state, EventKind::kSessionAttached, generation,
         {{"slot_id", slot.id},
          {"n_prompt", generation.n_prompt()},
          {"cache_n", n_reused},
          {"miss_reason", report.miss_reason},
          {"waited_ms", (now - generation.timings.t_queued) / kUsPerMs}});
  Announce(state, generation);
  state.changed = true;
}

// The choices of a request that has just started get the first free slots.
void StartChoices(EngineState& state, Generation& lead) {
  for (std::unique_ptr<Generation>& choice : lead.choices) {
    Slot& slot = *std::find_if(state.slots.begin(), state.slots.end(),
                               [](const Slot& other) { return other.running == nullptr; });
    state.cache.Clear(slot.own);
    slot.running = choice.get();
    choice->slot_id = slot.id;
    choice->sequence = &slot.own;
    choice->phase = Generation::Phase::kFollow;
    choice->n_ctx = lead.n_ctx;
    state.running.push_back(std::move(choice));
  }
  lead.choices.clear();
}

bool EnoughSlots(const EngineState& state, const Generation& generation) {
  const auto n_free = std::count_if(state.slots.begin(), state.slots.end(),
                                    [](const Slot& slot) { return slot.running == nullptr; });
  return static_cast<size_t>(n_free) > generation.choices.size();
}

Outcome TryStart(EngineState& state, Generation& generation) {
  const GenerationRequest& request = *generation.request;
  if (generation.session != nullptr && generation.session->running) return Outcome::kLater;
  std::optional<Reuse> reuse = ResolvePool(state, generation);
  if (!reuse) return Outcome::kLater;
  if (reuse->miss_reason == "no_pool" && request.attach.error_on_miss) {
    Fail(state, generation, PoolNotFound(request.attach.pool));
    return Outcome::kAnswered;
  }
  if (reuse->pool != nullptr) {
    const Gate gate = PassGate(state, generation, *reuse->pool);
    if (gate == Gate::kHeld) return Outcome::kLater;
    if (gate == Gate::kAnswered) return Outcome::kAnswered;
  }
  if (!EnoughSlots(state, generation)) return Outcome::kNoRoom;
  const auto [slot, loses_much] = ChooseSlot(state, generation);
  if (slot == nullptr) return Outcome::kLater;
  Session* const session = generation.session.get();
  if (session == nullptr && loses_much && request.keeps_state) {
    RefreshSlot(state, *slot, request.prompt, OriginOf(state, generation));
  }
  if (request.prompt.empty()) {
    EndEmpty(state, generation, *slot);
    return Outcome::kAnswered;
  }
  if (session != nullptr && !AcquireSequence(state, *session)) return Outcome::kLater;
  Sequence& sequence = session != nullptr ? session->sequence : slot->own;
  MatchPrompt(state, generation, sequence, &*reuse);
  const int32_t wanted_share = request.attach.shared_prefix_n_tokens.value_or(0);
  const bool has_source = reuse->pool != nullptr || reuse->other != nullptr;
  if (has_source && wanted_share > reuse->match.n_common) {
    Fail(state, generation,
         InvalidRequest("shared_prefix_n_tokens is " + std::to_string(wanted_share) +
                        ", but the prompt and what it shares from agree in the first " +
                        std::to_string(reuse->match.n_common) + " tokens only"));
    return Outcome::kAnswered;
  }
  const Outcome room = CheckRoom(state, generation, sequence, *reuse);
  if (room != Outcome::kStarted) return room;
  const bool emptied = reuse->other != nullptr && reuse->other->n_tokens() < reuse->match.n_pool;
  if (emptied) return Outcome::kLater;  // the other slot's tokens had to make room
  Start(state, generation, *slot, sequence, *reuse);
  StartChoices(state, generation);
  SaveIdleSlots(state);
  return room;
}

}  // namespace

void Announce(EngineState& state, Generation& generation) {
  const GenerationRequest& request = *generation.request;
  if (!generation.announced) {
    state.Emit(generation, Started{generation.slot_id, generation.timings, generation.report});
  }
  generation.announced = true;
  if (request.stream && request.return_progress) {
    state.Emit(generation, Progress{generation.n_prompt(), generation.timings.n_prompt_cached,
                                    generation.timings.n_prompt_cached, 0});
  }
}

std::optional<Problem> RefuseNewWork(const EngineState& state) {
  if (state.draining) {
    return Problem{.status = 503,
                   .type = "unavailable_error",
                   .message = "the server is shutting down",
                   .retry_after_s = 5};
  }
  if (state.n_waiting() >= state.config.max_waiting) {
    return Problem{.status = 503,
                   .type = "too_many_waiting",
                   .message = std::to_string(state.n_waiting()) +
                              " requests are waiting already (--polykv-max-waiting)",
                   .retry_after_s = 2};
  }
  return std::nullopt;
}

Problem ExceedsContext(int32_t n_prompt, int32_t n_ctx) {
  return {.status = 400,
          .type = "exceed_context_size_error",
          .message = "request (" + std::to_string(n_prompt) +
                     " tokens) exceeds the available context size (" + std::to_string(n_ctx) +
                     " tokens), try increasing it",
          .n_prompt_tokens = n_prompt,
          .n_ctx = n_ctx};
}

void Enqueue(EngineState& state, std::unique_ptr<GenerationRequest> request) {
  const std::optional<int32_t> most = MostTokens(state, *request);
  auto generation =
      std::make_unique<Generation>(state.next_task_id++, std::move(request), state.now(), most);
  for (auto& choice : generation->request->choices) {
    generation->choices.push_back(
        std::make_unique<Generation>(state.next_task_id++, std::move(choice), state.now(), most));
    generation->choices.back()->lead = generation->task_id;
    ++generation->n_choices;
  }
  generation->request->choices.clear();
  const AttachSpec& attach = generation->request->attach;
  const bool with_session = attach.any() && state.config.max_sessions > 0;
  generation->n_ctx = with_session ? state.config.n_ctx_session : state.config.n_ctx_plain;
  if (auto problem = Refusal(state, *generation)) {
    for (const auto& choice : generation->choices) state.Emit(*choice, *problem);
    state.Emit(*generation, std::move(*problem));
    return;
  }
  if (with_session) generation->session = OpenSession(state, *generation->request);
  state.waiting.push_back(std::move(generation));
  state.changed = true;
}

void StartWaiting(EngineState& state) {
  state.model_full = state.model_full && !state.running.empty();
  if (state.model_full || AnyParked(state)) return;
  const auto free_slot = [&] {
    return std::any_of(state.slots.begin(), state.slots.end(),
                       [](const Slot& slot) { return slot.running == nullptr; });
  };
  for (auto it = state.waiting.begin(); it != state.waiting.end() && free_slot();) {
    switch (TryStart(state, **it)) {
      case Outcome::kStarted:
        state.running.push_back(std::move(*it));
        it = state.waiting.erase(it);
        break;
      case Outcome::kAnswered:
        it = state.waiting.erase(it);
        break;
      case Outcome::kLater:
        ++it;
        break;
      case Outcome::kNoRoom:
        return;
    }
  }
}

}  // namespace polykv
