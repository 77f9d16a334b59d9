#include "engine/steps/idle_tier.h"

#include <algorithm>
#include <utility>

#include "engine/floors.h"
#include "engine/steps/materialize.h"
#include "engine/steps/pressure.h"
#include "pool/prefix.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;

SequenceCache::Place PlaceOf(EngineState& state, HostKind kind, int64_t owner) {
  return [&state, kind, owner](SavedSequence saved, size_t state_size) {
    return state.host.AddOrNull(kind, owner, std::move(saved), state_size);
  };
}

bool Decodes(const EngineState& state) {
  return std::any_of(state.running.begin(), state.running.end(), [](const auto& generation) {
    return generation->phase == Generation::Phase::kDecode;
  });
}

void CoolOldestSession(EngineState& state) {
  const TimeUs before = state.now() - state.config.session_hot_ms * kUsPerMs;
  Session* oldest = nullptr;
  for (const auto& [id, session] : state.sessions) {
    if (session->running || session->n_waiting > 0 || session->last_active > before) continue;
    if (SequenceCache::SoleCells(session->sequence) == 0) continue;
    if (oldest == nullptr || session->last_active < oldest->last_active) oldest = session.get();
  }
  if (oldest == nullptr) return;
  const int64_t n_cells = SequenceCache::SoleCells(oldest->sequence);
  if (MayCopy(state, n_cells * state.backend->info().bytes_per_cell)) CoolSession(state, *oldest);
}

void CoolOldestPool(EngineState& state) {
  const TimeUs before = state.now() - state.config.grace_ms * kUsPerMs;
  PoolNode* oldest = nullptr;
  for (const auto& [id, pool] : state.pools.nodes()) {
    if (!PoolTree::Evictable(*pool) || pool->last_access > before) continue;
    if (!state.cache.CanSave(*pool)) continue;
    if (!state.host.CanHold(pool->OwnedCells() * state.backend->info().bytes_per_cell)) continue;
    if (oldest == nullptr || pool->last_access < oldest->last_access) oldest = pool.get();
  }
  if (oldest == nullptr) return;
  const int64_t n_cells = oldest->OwnedCells();
  if (MayCopy(state, n_cells * state.backend->info().bytes_per_cell)) CoolPool(state, *oldest);
}

}  // namespace

bool CoolSession(EngineState& state, Session& session) {
  if (!state.host.on()) return false;
  const bool cold = state.host.FindOrNull(HostKind::kSession, session.number) != nullptr;
  const bool moved =
      cold ? state.cache.MoveOutShared(session.sequence,
                                       [&](size_t state_size) {
                                         return state.host.GrowOrNull(HostKind::kSession,
                                                                      session.number, state_size);
                                       })
           : state.cache.MoveOut(session.sequence,
                                 PlaceOf(state, HostKind::kSession, session.number));
  if (!moved) return false;
  session.cooled = true;
  state.counters.sessions_saved += cold ? 0 : 1;
  state.changed = true;
  return true;
}

void DetachSession(EngineState& state, Session& session) {
  if (session.sequence.id == kNoSeq) return;
  if (SequenceCache::SoleCells(session.sequence) > 0) CoolSession(state, session);
  state.cache.Clear(session.sequence);
  state.session_seqs.Free(std::exchange(session.sequence.id, kNoSeq));
  state.changed = true;
}

bool CanShareFrom(const EngineState& state, const PoolNode& pool, const SavedSequence& saved) {
  if (pool.residency != Residency::kResident || pool.origin != saved.origin) return false;
  if (LongestCommonPrefix(pool.prefix.tokens, saved.tokens) < saved.begin) return false;
  return state.cache.MayShare(pool.seq, pool.length(), saved.begin, /*tokens_remain=*/true)
             .length == saved.begin;
}

bool SharesWith(const EngineState& state, const Sequence& sequence, const SavedSequence& saved,
                const PoolNode* pool) {
  if (!sequence.tokens.empty()) return sequence.n_tokens() == saved.begin;
  return saved.begin == 0 || (pool != nullptr && CanShareFrom(state, *pool, saved));
}

const SavedSequence* SavedOfOrNull(const EngineState& state, const Session& session,
                                   const PoolNode* pool) {
  const SavedSequence* saved = state.host.FindOrNull(HostKind::kSession, session.number);
  if (saved == nullptr) return nullptr;
  const bool alone = session.sequence.tokens.empty() && saved->is_whole();
  return alone || SharesWith(state, session.sequence, *saved, pool) ? saved : nullptr;
}

bool WarmSession(EngineState& state, Session& session, const std::shared_ptr<PoolNode>& pool) {
  Sequence& sequence = session.sequence;
  const auto saved = [&] { return SavedOfOrNull(state, session, pool.get()); };
  const auto shares = [&] { return SharesWith(state, sequence, *saved(), pool.get()); };
  while (saved() != nullptr && state.cache.free() < saved()->n_cells(shares()) &&
         ReclaimOnce(state, &sequence, pool.get())) {
  }
  bool warm = false;
  if (saved() != nullptr && state.cache.free() >= saved()->n_cells(shares())) {
    const bool can_share = sequence.n_tokens() < saved()->begin && shares();
    if (can_share) state.cache.Share(sequence, pool, saved()->begin);
    warm = state.cache.MoveIn(sequence, *saved());
  }
  state.host.Drop(HostKind::kSession, session.number);
  state.counters.sessions_restored += warm ? 1 : 0;
  if (warm) session.cooled = false;
  return warm;
}

void ForgetCooled(EngineState& state, Session& session) {
  state.host.Drop(HostKind::kSession, session.number);
  session.cooled = false;
}

void CoolPool(EngineState& state, PoolNode& pool) {
  if (!state.host.on() || !state.cache.CanSave(pool)) return;
  if (!state.cache.SavePool(pool, PlaceOf(state, HostKind::kPool, pool.id))) return;
  EvictPool(state, pool);
  ++state.counters.pools_saved;
}

void EvictToHost(EngineState& state, PoolNode& pool) {
  CoolPool(state, pool);
  if (pool.residency == Residency::kResident) EvictPool(state, pool);
}

bool RestorePool(EngineState& state, PoolNode& pool) {
  const auto saved = [&] {
    const SavedSequence* found = state.host.FindOrNull(HostKind::kPool, pool.id);
    return found != nullptr && state.cache.CanLoad(pool, *found) ? found : nullptr;
  };
  const int32_t n_cells = pool.length() - pool.n_materialized;
  while (saved() != nullptr && state.cache.free() < n_cells && ReclaimOnce(state, nullptr, &pool)) {
  }
  const bool restored =
      saved() != nullptr && state.cache.free() >= n_cells && state.cache.LoadPool(pool, *saved());
  state.host.Drop(HostKind::kPool, pool.id);
  state.counters.pools_restored += restored ? 1 : 0;
  return restored;
}

void ForgetCooled(EngineState& state, const PoolNode& pool) {
  state.host.Drop(HostKind::kPool, pool.id);
}

void CoolIdle(EngineState& state) {
  // Cells of a split cache are in nobody's way.
  if (!state.host.on() || !state.backend->info().unified) return;
  if (Decodes(state)) CoolOldestSession(state);
  CoolOldestPool(state);
}

}  // namespace polykv
