#include "engine/steps/retire.h"

#include <algorithm>

#include "base/check.h"
#include "engine/record.h"
#include "engine/steps/change_pool.h"
#include "engine/steps/embed.h"
#include "engine/steps/gate.h"
#include "engine/steps/materialize.h"
#include "engine/steps/park.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;

SlotView LastView(const Generation& generation, const SlotView& before) {
  SlotView view = before;
  view.tenant = generation.request->tenant;
  view.task_id = generation.task_id;
  view.n_tokens = generation.n_tokens();
  view.params_json = generation.request->params_json;
  return view;
}

void ForgetSession(EngineState& state, Session& session) {
  POLYKV_CHECK(!session.running && session.n_waiting == 0);
  EndAdmission(state, session);
  DropSessionCells(state, session);
  Record(state, EventKind::kSessionEnded, session);
  state.sessions.erase(SessionKey(session.key));  // a copy: the key lives in the session
}

enum class Keep {
  kAll,  // the next request may go on from there
  kPrompt,
  kEarlier,  // what a known session held before this request; nothing of a plain one
  kNothing,
};

void GiveUpCells(EngineState& state, Generation& generation, Keep keep) {
  Sequence& sequence = *generation.sequence;
  if (keep == Keep::kPrompt) {
    state.cache.Trim(sequence, std::min(generation.n_prompt(), sequence.n_tokens()));
    return;
  }
  const bool known = generation.session != nullptr && !generation.session->one_request;
  const bool earlier = keep == Keep::kEarlier && known;
  state.cache.Trim(sequence,
                   earlier ? std::min(generation.report.cache_n, sequence.n_tokens()) : 0);
}

// The generation lets go of slot and session.
void Leave(EngineState& state, Generation& generation, Keep keep) {
  POLYKV_CHECK(generation.phase != Generation::Phase::kEnded);
  const TimeUs now = state.now();
  state.model_full = false;
  if (generation.slot_id >= 0) {
    Slot& slot = state.slots[static_cast<size_t>(generation.slot_id)];
    DropParked(state, generation);
    if (keep != Keep::kAll) GiveUpCells(state, generation, keep);
    slot.last = LastView(generation, slot.last);
    slot.running = nullptr;
    state.slot_used_at = std::max(now, state.slot_used_at + 1);
    slot.last_used = state.slot_used_at;
    if (generation.session != nullptr) {
      generation.session->running = false;
      generation.session->last_active = now;
    }
  } else if (generation.session != nullptr) {
    --generation.session->n_waiting;
  }
  generation.phase = Generation::Phase::kEnded;
  state.changed = true;
  const std::shared_ptr<Session> session = generation.session;
  if (session == nullptr || session->running || session->n_waiting > 0) return;
  const bool never_ran = session->last_active == 0;
  if (generation.request->attach.session_end || session->one_request || session->end_when_idle ||
      never_ran) {
    ForgetSession(state, *session);
  }
}

// What the next request on this sequence may find. A choice besides the first leaves nothing; a
// session that was asked for several choices went none of their ways.
Keep KeptAfterFinish(const Generation& generation) {
  if (!generation.report.stop_reason.empty()) return Keep::kEarlier;
  if (generation.lead != Generation::kNoLead) return Keep::kNothing;
  return generation.n_choices > 1 && generation.session != nullptr ? Keep::kPrompt : Keep::kAll;
}

// Choices cannot go on without the prompt that they wait for.
void FailChoices(EngineState& state, Generation& lead, const Problem& problem) {
  for (const auto& choice : lead.choices) {
    state.Emit(*choice, problem);
  }
  for (const auto& other : state.running) {
    if (other->lead == lead.task_id && other->phase == Generation::Phase::kFollow) {
      Fail(state, *other, problem);
    }
  }
}

std::string_view StopName(StopKind stop) {
  switch (stop) {
    case StopKind::kNone:
      return "none";
    case StopKind::kEndOfGeneration:
      return "eos";
    case StopKind::kStopWord:
      return "word";
    case StopKind::kLimit:
      break;
  }
  return "limit";
}

void RecordFinished(EngineState& state, const Generation& generation, const Finished& finished) {
  const Timings& timings = finished.timings;
  const bool exhausted = !finished.report.stop_reason.empty();
  Record(
      state, EventKind::kSessionFinished, generation,
      {{"n_generated", timings.n_generated},
       {"ctx_used", finished.report.ctx_used},
       {"ttft_ms", (timings.t_first - timings.t_queued) / kUsPerMs},
       {"tps", finished.report.session_tps},
       {"stop", exhausted ? finished.report.stop_reason : std::string(StopName(finished.stop))}});
}

// Pools that nobody waits for any more and no fork needs are not computed to the end.
void ReapMaterializations(EngineState& state) {
  std::vector<std::shared_ptr<PoolNode>> unwanted;
  for (Materialization& job : state.materializing) {
    const size_t n_gone =
        std::erase_if(job.waiters, [](const auto& waiter) { return waiter.channel->cancelled(); });
    job.node->refs -= static_cast<int32_t>(n_gone);
    const bool wanted = job.wanted || !job.waiters.empty() || job.node->n_children > 0;
    if (!wanted) unwanted.push_back(job.node);
  }
  for (const auto& node : unwanted) {
    FailPool(state, node, {.status = 499, .type = "cancelled", .message = "cancelled"});
  }
}

}  // namespace

void Finish(EngineState& state, Generation& generation, bool truncated, std::string stop_reason) {
  Finished finished;
  const TimeUs now = state.now();
  const bool exhausted = !stop_reason.empty();
  generation.report.ctx_used = generation.n_tokens();
  generation.report.session_tps = generation.rate.TokensPerSecond(now);
  generation.report.stop_reason = std::move(stop_reason);
  finished.slot_id = generation.slot_id;
  finished.text = generation.text.text();
  finished.tokens = std::move(generation.tokens);
  finished.token_texts = std::move(generation.token_texts);
  finished.token_delivered = std::move(generation.token_delivered);
  finished.stop = exhausted ? StopKind::kLimit : generation.text.stop();
  finished.stopping_word = generation.text.stopping_word();
  finished.truncated = truncated || generation.shifted;
  finished.has_new_line = generation.text.has_new_line();
  finished.n_tokens_cached = generation.n_tokens();
  finished.timings = generation.timings;
  finished.report = generation.report;
  if (exhausted) ++state.counters.kv_exhausted;
  RecordFinished(state, generation, finished);
  Leave(state, generation, KeptAfterFinish(generation));
  state.Emit(generation, std::move(finished));
}

void Fail(EngineState& state, Generation& generation, Problem problem) {
  Record(state, EventKind::kSessionFailed, generation,
         {{"status", problem.status}, {"error", problem.type}, {"message", problem.message}});
  Leave(state, generation, Keep::kNothing);
  FailChoices(state, generation, problem);
  state.Emit(generation, std::move(problem));
}

void Cancel(EngineState& state, Generation& generation) {
  ++state.counters.cancelled;
  Record(state, EventKind::kSessionCancelled, generation);
  Leave(state, generation, Keep::kEarlier);
  FailChoices(state, generation,
              {.status = 499, .type = "cancelled", .message = "the request was cancelled"});
}

void DropSessionCells(EngineState& state, Session& session) {
  state.host.Drop(HostKind::kSession, session.number);
  if (session.sequence.id == kNoSeq) return;
  state.cache.Clear(session.sequence);
  state.session_seqs.Free(std::exchange(session.sequence.id, kNoSeq));
  state.changed = true;
}

bool EndSession(EngineState& state, const SessionKey& key) {
  const auto it = state.sessions.find(key);
  if (it == state.sessions.end()) return false;
  const std::shared_ptr<Session> session = it->second;
  session->end_when_idle = true;
  if (!session->running && session->n_waiting == 0) {
    ForgetSession(state, *session);
    return true;
  }
  const Problem gone{.status = 410,
                     .type = "session_ended",
                     .message = "the session was deleted while this request was open"};
  const auto end = [&](const std::unique_ptr<Generation>& generation) {
    if (generation->session == session && generation->phase != Generation::Phase::kEnded) {
      Fail(state, *generation, gone);
    }
  };
  std::for_each(state.waiting.begin(), state.waiting.end(), end);
  std::for_each(state.running.begin(), state.running.end(), end);
  SweepEnded(state);
  return true;
}

void SweepEnded(EngineState& state) {
  const auto ended = [](const std::unique_ptr<Generation>& generation) {
    return generation->phase == Generation::Phase::kEnded;
  };
  std::erase_if(state.waiting, ended);
  std::erase_if(state.running, ended);
}

void ReapAbandoned(EngineState& state) {
  const auto reap = [&](const std::unique_ptr<Generation>& generation) {
    if (generation->cancelled()) Cancel(state, *generation);
  };
  std::for_each(state.waiting.begin(), state.waiting.end(), reap);
  std::for_each(state.running.begin(), state.running.end(), reap);
  SweepEnded(state);
  for (Embedding& embedding : state.embeddings) {
    if (embedding.command.channel->cancelled()) Cancel(state, embedding);
  }
  SweepEmbeddings(state);
  ReapMaterializations(state);
}

void ReapExpired(EngineState& state) {
  const TimeUs now = state.now();
  ReapPools(state);
  std::vector<SessionKey> idle;
  for (const auto& [key, session] : state.sessions) {
    const bool open = session->running || session->n_waiting > 0;
    if (!open && now - session->last_active >= state.config.session_idle_ms * kUsPerMs) {
      idle.push_back(key);
    }
  }
  for (const SessionKey& key : idle) EndSession(state, key);
}

}  // namespace polykv
