#include "engine/steps/pressure.h"

#include <algorithm>

#include "base/check.h"
#include "engine/record.h"
#include "engine/steps/embed.h"
#include "engine/steps/idle_tier.h"
#include "engine/steps/materialize.h"
#include "engine/steps/park.h"
#include "engine/steps/retire.h"

namespace polykv {
namespace {

using Phase = Generation::Phase;

bool Idle(const Session& session) { return !session.running && session.sequence.id != kNoSeq; }

bool Idle(const Slot& slot) {  // its own sequence may be dropped
  return !slot.in_use() && slot.own.n_tokens() > 0;
}

Slot* OldestIdleSlotOrNull(EngineState& state, const Sequence* keep) {
  Slot* oldest = nullptr;
  for (Slot& slot : state.slots) {
    if (!Idle(slot) || &slot.own == keep) continue;
    if (oldest == nullptr || slot.last_used < oldest->last_used) oldest = &slot;
  }
  return oldest;
}

// Of those that hold at least `n_sole` cells alone.
Session* OldestIdleSessionOrNull(EngineState& state, const Sequence* keep, int32_t n_sole) {
  Session* oldest = nullptr;
  for (const auto& [id, session] : state.sessions) {
    if (!Idle(*session) || &session->sequence == keep) continue;
    if (SequenceCache::SoleCells(session->sequence) < n_sole) continue;
    if (oldest == nullptr || session->last_active < oldest->last_active) oldest = session.get();
  }
  return oldest;
}

void LeaveSlot(EngineState& state, Generation& generation) {
  state.cache.Clear(*generation.sequence);
  state.slots[static_cast<size_t>(generation.slot_id)].running = nullptr;
  generation.slot_id = -1;
  generation.sequence = nullptr;
  generation.phase = Generation::Phase::kWaiting;
}

// The request goes back to the head of the queue, with its choices: they have no text yet, so
// nobody sees more than a wait.
void PutBack(EngineState& state, const Generation& leaving) {
  const auto it = std::find_if(state.running.begin(), state.running.end(),
                               [&leaving](const auto& other) { return other.get() == &leaving; });
  std::unique_ptr<Generation> generation = std::move(*it);
  state.running.erase(it);
  LeaveSlot(state, *generation);
  for (std::unique_ptr<Generation>& other : state.running) {
    if (other->lead != generation->task_id) continue;
    LeaveSlot(state, *other);
    generation->choices.push_back(std::move(other));
  }
  std::erase(state.running, nullptr);
  if (generation->session != nullptr) {
    generation->session->running = false;
    ++generation->session->n_waiting;
  }
  state.waiting.push_front(std::move(generation));
  state.changed = true;
}

Problem OutOfCells() {
  return {.status = 503,
          .type = "no_free_cells",
          .message = "the cache has no cells left beside what is pinned or running",
          .retry_after_s = 5};
}

// Whether the request may be asked to give its cells to others.
bool MayGiveWay(const Generation& generation) {
  return generation.phase == Phase::kPrefill || generation.phase == Phase::kDecode;
}

Generation* NewestThatMayGiveWayOrNull(EngineState& state) {
  const auto newest = std::find_if(state.running.rbegin(), state.running.rend(),
                                   [](const auto& generation) { return MayGiveWay(*generation); });
  return newest == state.running.rend() ? nullptr : newest->get();
}

// Whether cells could come free without it: by somebody that has cells, or that waits for them.
bool RunsBeside(const EngineState& state, const Generation& generation, bool parked_too) {
  const auto is_other = [&](const auto& other) {
    const bool follows = other->phase == Phase::kFollow && other->lead == generation.task_id;
    return other.get() != &generation && !follows && (parked_too || other->phase != Phase::kParked);
  };
  return !state.materializing.empty() ||
         std::any_of(state.running.begin(), state.running.end(), is_other);
}

void GiveWay(EngineState& state, Generation& generation) {
  if (generation.phase == Phase::kPrefill) {
    if (RunsBeside(state, generation, /*parked_too=*/true)) {
      PutBack(state, generation);
      return RecordPressure(state, "request_put_back");
    }
    Fail(state, generation, OutOfCells());
    RecordPressure(state, "request_failed");
  } else {
    const bool others_run = RunsBeside(state, generation, /*parked_too=*/false);
    if (others_run ? Park(state, generation) : ParkShared(state)) {
      return RecordPressure(state, "request_parked");
    }
    Finish(state, generation, /*truncated=*/true, "kv_exhausted");
    RecordPressure(state, "request_ended");
  }
  SweepEnded(state);
}

// One request or materialization gives way. False if nothing is left to give.
bool SacrificeOnce(EngineState& state) {
  if (Generation* newest = NewestThatMayGiveWayOrNull(state)) {
    GiveWay(state, *newest);
    return true;
  }
  if (state.materializing.empty()) return false;
  FailPool(state, state.materializing.back().node, OutOfCells());
  RecordPressure(state, "pool_failed");
  return true;
}

}  // namespace

int32_t ReclaimableCells(const EngineState& state, const Sequence* keep_sequence,
                         const PoolNode* keep_pool) {
  int32_t cells = state.pools.EvictableCells(keep_pool);
  for (const Slot& slot : state.slots) {
    if (Idle(slot) && &slot.own != keep_sequence) cells += SequenceCache::SoleCells(slot.own);
  }
  for (const auto& [id, session] : state.sessions) {
    if (Idle(*session) && &session->sequence != keep_sequence) {
      cells += SequenceCache::SoleCells(session->sequence);
    }
  }
  return cells;
}

int32_t StartedCells(const EngineState& state) {
  int32_t cells = 0;
  for (const auto& generation : state.running) {
    const bool computes = generation->phase == Phase::kPrefill;
    if (computes) cells += generation->n_prompt_left();
    if (computes || generation->phase == Phase::kFollow) {
      cells += FirstStretch(state.config, *generation);
    }
  }
  for (const Materialization& job : state.materializing) {
    cells += job.begun ? job.node->length() - job.node->n_materialized : OwnCells(state, *job.node);
  }
  return cells;
}

int32_t ReservedCells(const EngineState& state) {
  return StartedCells(state) + ParkedCells(state) + NextEmbeddingCells(state);
}

int32_t FirstStretch(const EngineConfig& config, const Generation& generation) {
  return generation.n_predict < 0 ? config.first_stretch
                                  : std::min(config.first_stretch, generation.n_predict);
}

bool ReclaimOnce(EngineState& state, const Sequence* keep_sequence, const PoolNode* keep_pool) {
  if (Session* session = OldestIdleSessionOrNull(state, keep_sequence, /*n_sole=*/1)) {
    const bool saved = CoolSession(state, *session);
    if (!saved) DropSessionCells(state, *session);
    RecordPressure(state, saved ? "session_saved" : "session_dropped");
    return true;
  }
  if (Slot* slot = OldestIdleSlotOrNull(state, keep_sequence)) {
    state.cache.Clear(slot->own);
    RecordPressure(state, "slot_cleared");
    return true;
  }
  if (const auto pool = state.pools.EvictableOrNull(keep_pool)) {
    EvictToHost(state, *pool);
    RecordPressure(state, "pool_evicted");
    return true;
  }
  if (Session* session = OldestIdleSessionOrNull(state, keep_sequence, /*n_sole=*/0)) {
    DetachSession(state, *session);
    RecordPressure(state, "session_detached");
    return true;
  }
  return false;
}

bool MakeRoom(EngineState& state, int32_t n_cells) {
  bool touched = false;
  while (state.cache.free() < n_cells && !touched) {
    if (!ReclaimOnce(state, nullptr, nullptr)) touched = SacrificeOnce(state);
  }
  return touched;
}

void MakeSomeRoom(EngineState& state) {
  if (ReclaimOnce(state, nullptr, nullptr)) return;
  POLYKV_CHECK(SacrificeOnce(state));
  state.model_full = true;
}

}  // namespace polykv
