#include "engine/steps/park.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "engine/record.h"
#include "engine/steps/idle_tier.h"
#include "engine/steps/pressure.h"
#include "engine/steps/retire.h"

namespace polykv {
namespace {

using Phase = Generation::Phase;

constexpr TimeUs kUsPerMs = 1'000;

Generation* OldestOrNull(EngineState& state) {
  const auto oldest =
      std::find_if(state.running.begin(), state.running.end(),
                   [](const auto& generation) { return generation->phase == Phase::kParked; });
  return oldest == state.running.end() ? nullptr : oldest->get();
}

// Whether somebody else's end could still make room.
bool OthersHoldCells(const EngineState& state) {
  const bool others =
      std::any_of(state.running.begin(), state.running.end(),
                  [](const auto& generation) { return generation->phase != Phase::kParked; });
  const bool embeds = !state.embed_seats.empty() && state.embed_seats.front().n_tokens() > 0;
  return others || embeds || !state.materializing.empty();
}

// The pool from which a parked request that moved all out can share once more; null: none.
std::shared_ptr<PoolNode> PoolToShareOrNull(const EngineState& state,
                                            const Generation& generation) {
  if (generation.parked->shared_state.size() == 0) return nullptr;
  const auto pool = state.pools.FindOrNull(generation.report.pool_id);
  return pool != nullptr && CanShareFrom(state, *pool, *generation.parked) ? pool : nullptr;
}

int32_t SavedCells(const EngineState& state, const Generation& generation) {
  const bool shares =
      generation.sequence->n_tokens() > 0 || PoolToShareOrNull(state, generation) != nullptr;
  return generation.parked->n_cells(shares);
}

int32_t NeededCells(const EngineState& state, const Generation& generation) {
  const int32_t n_left = generation.n_predict - generation.timings.n_generated;
  const int32_t stretch = generation.n_predict < 0 ? state.config.first_stretch
                                                   : std::min(state.config.first_stretch, n_left);
  return SavedCells(state, generation) + stretch;
}

// Whether only parked requests keep the cells of the lease in use.
bool ComesFree(const EngineState& state, const PoolLease& lease) {
  if (lease.length() == 0 || lease.node()->pinned()) return false;
  const auto n_parked =
      std::count_if(state.running.begin(), state.running.end(), [&lease](const auto& generation) {
        return generation->phase == Phase::kParked &&
               generation->sequence->lease.node() == lease.node();
      });
  return static_cast<size_t>(n_parked) == lease.node()->leases.size();
}

bool Resume(EngineState& state, Generation& generation) {
  Sequence& sequence = *generation.sequence;
  if (const auto pool = PoolToShareOrNull(state, generation)) {
    state.cache.Share(sequence, pool, generation.parked->begin);
  }
  if (!state.cache.MoveIn(sequence, *generation.parked)) return false;
  DropParked(state, generation);
  generation.phase = Phase::kDecode;
  const TimeUs parked = state.now() - generation.parked_at;
  generation.rate.Skip(parked);
  generation.pace.Skip(parked);
  ++state.counters.resumed;
  Record(state, EventKind::kSessionResumed, generation, {{"parked_ms", parked / kUsPerMs}});
  state.changed = true;
  return true;
}

// False: it stays parked.
bool TryResume(EngineState& state, Generation& generation) {
  const bool others = OthersHoldCells(state);
  const int32_t needed = NeededCells(state, generation);
  const int32_t available =
      state.cache.free() + ReclaimableCells(state, nullptr, nullptr) - StartedCells(state);
  if (others && (state.model_full || needed > available)) return false;
  while (state.cache.free() < needed && ReclaimOnce(state, nullptr, nullptr)) {
  }
  if (state.cache.free() > SavedCells(state, generation) && Resume(state, generation)) return true;
  state.model_full = others;
  return false;
}

}  // namespace

bool Park(EngineState& state, Generation& generation) {
  POLYKV_CHECK(generation.phase == Phase::kDecode);
  const auto place = [&](SavedSequence saved, size_t state_size) -> SavedSequence* {
    const int64_t n_bytes = saved.n_bytes() + static_cast<int64_t>(state_size);
    if (n_bytes > state.config.park_bytes - state.parked_bytes) return nullptr;
    saved.state = HostBytes(state_size);
    if (saved.state.size() != state_size) return nullptr;
    state.parked_bytes += n_bytes;
    generation.parked = std::move(saved);
    return &*generation.parked;
  };
  if (!state.cache.MoveOut(*generation.sequence, place)) return false;
  generation.next.resize(1);  // without the draft
  generation.phase = Phase::kParked;
  generation.parked_at = state.now();
  ++state.counters.parked;
  Record(state, EventKind::kSessionParked, generation, {{"n_cells", generation.parked->n_saved()}});
  state.changed = true;
  return true;
}

bool ParkShared(EngineState& state) {
  for (auto it = state.running.rbegin(); it != state.running.rend(); ++it) {
    Generation& generation = **it;
    Sequence& sequence = *generation.sequence;
    if (generation.phase != Phase::kParked || !ComesFree(state, sequence.lease)) continue;
    const auto place = [&](size_t state_size) -> SavedSequence* {
      const auto n_bytes = static_cast<int64_t>(state_size);
      if (n_bytes > state.config.park_bytes - state.parked_bytes) return nullptr;
      generation.parked->shared_state = HostBytes(state_size);
      if (generation.parked->shared_state.size() != state_size) return nullptr;
      state.parked_bytes += n_bytes;
      return &*generation.parked;
    };
    if (state.cache.MoveOutShared(sequence, place)) return true;
  }
  return false;
}

void DropParked(EngineState& state, Generation& generation) {
  if (!generation.parked) return;
  state.parked_bytes -= generation.parked->n_bytes();
  generation.parked.reset();
}

void ResumeParked(EngineState& state) {
  while (Generation* oldest = OldestOrNull(state)) {
    if (TryResume(state, *oldest)) continue;
    if (OthersHoldCells(state)) return;
    Finish(state, *oldest, /*truncated=*/true, "kv_exhausted");
    SweepEnded(state);
  }
}

bool AnyParked(const EngineState& state) {
  return std::any_of(state.running.begin(), state.running.end(),
                     [](const auto& generation) { return generation->phase == Phase::kParked; });
}

int32_t ParkedCells(const EngineState& state) {
  int32_t cells = 0;
  for (const auto& generation : state.running) {
    if (generation->phase == Phase::kParked) cells += NeededCells(state, *generation);
  }
  return cells;
}

}  // namespace polykv
