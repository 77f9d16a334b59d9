#include "engine/steps/pressure.h"

#include <algorithm>

#include "base/check.h"
#include "engine/steps/embed.h"
#include "engine/steps/materialize.h"
#include "engine/steps/retire.h"

namespace polykv {
namespace {

bool Idle(const Session& session) { return !session.running && session.sequence.id != kNoSeq; }

bool Idle(const Slot& slot) {  // its own sequence may be dropped
  return !slot.in_use() && slot.own.n_tokens() > 0;
}

// A sequence that nobody is using, and when somebody last did.
struct IdleSequence {
  TimeUs last_used = 0;
  Slot* slot = nullptr;        // either this
  Session* session = nullptr;  // or this; both null: there is none
};

IdleSequence LeastRecentlyUsed(EngineState& state, const Sequence* keep) {
  IdleSequence oldest;
  const auto consider = [&](IdleSequence candidate) {
    const bool none_yet = oldest.slot == nullptr && oldest.session == nullptr;
    if (none_yet || candidate.last_used < oldest.last_used) oldest = candidate;
  };
  for (Slot& slot : state.slots) {
    if (Idle(slot) && &slot.own != keep) consider({slot.last_used, &slot, nullptr});
  }
  for (const auto& [id, session] : state.sessions) {
    if (Idle(*session) && &session->sequence != keep) {
      consider({session->last_active, nullptr, session.get()});
    }
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

// The newest goes back to the head of the queue, with its choices: they have no text yet, so nobody
// sees more than a wait.
void PutBackNewest(EngineState& state) {
  std::unique_ptr<Generation> generation = std::move(state.running.back());
  state.running.pop_back();
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

bool RunsBesideOthers(const EngineState& state, const Generation& generation) {
  return std::any_of(state.running.begin(), state.running.end(), [&](const auto& other) {
    return other.get() != &generation && other->lead != generation.task_id;
  });
}

// One request or materialization gives way. False if nothing is left to give.
bool SacrificeOnce(EngineState& state) {
  if (!state.running.empty()) {
    Generation& newest = *state.running.back();
    if (newest.phase == Generation::Phase::kDecode) {
      Finish(state, newest, /*truncated=*/true, "kv_exhausted");
      SweepEnded(state);
    } else if (RunsBesideOthers(state, newest) || !state.materializing.empty()) {
      PutBackNewest(state);
    } else {
      Fail(state, newest, OutOfCells());
      SweepEnded(state);
    }
    return true;
  }
  if (state.materializing.empty()) return false;
  FailPool(state, state.materializing.back().node, OutOfCells());
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

int32_t ReservedCells(const EngineState& state) {
  int32_t cells = 0;
  for (const auto& generation : state.running) {
    if (generation->phase == Generation::Phase::kPrefill) cells += generation->n_prompt_left();
    if (generation->phase != Generation::Phase::kDecode) {
      cells += FirstStretch(state.config, *generation);
    }
  }
  for (const Materialization& job : state.materializing) {
    cells += job.begun ? job.node->length() - job.node->n_materialized : OwnCells(state, *job.node);
  }
  return cells + NextEmbeddingCells(state);
}

int32_t FirstStretch(const EngineConfig& config, const Generation& generation) {
  return generation.n_predict < 0 ? config.first_stretch
                                  : std::min(config.first_stretch, generation.n_predict);
}

bool ReclaimOnce(EngineState& state, const Sequence* keep_sequence, const PoolNode* keep_pool) {
  const IdleSequence oldest = LeastRecentlyUsed(state, keep_sequence);
  if (oldest.slot != nullptr) {
    state.cache.Clear(oldest.slot->own);
    return true;
  }
  if (oldest.session != nullptr) {
    DropSessionCells(state, *oldest.session);
    return true;
  }
  if (const auto pool = state.pools.EvictableOrNull(keep_pool)) {
    EvictPool(state, *pool);
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
  if (!ReclaimOnce(state, nullptr, nullptr)) POLYKV_CHECK(SacrificeOnce(state));
}

}  // namespace polykv
