#include "engine/load.h"

#include <algorithm>
#include <vector>

#include "engine/steps/pressure.h"

namespace polykv {
namespace {

constexpr TimeUs kAttachedUs = 30'000'000;  // a session counts as attached that long after its turn

bool Governs(const EngineState& state, PoolId governor, const Session& session) {
  const PoolNode* const found = GoverningPoolOrNull(state, session.pool_id);
  return found != nullptr && found->id == governor;
}

bool Attached(const Session& session, TimeUs now) {
  return session.running || session.n_waiting > 0 || now - session.last_active < kAttachedUs;
}

// The decoding sessions of `covers`, by what they have done from `since` on.
template <typename Covers>
std::vector<double> Rates(const EngineState& state, const Covers& covers, int32_t* n_warming,
                          TimeUs since = 0) {
  std::vector<double> rates;
  for (const auto& generation : state.running) {
    if (generation->phase != Generation::Phase::kDecode || !covers(*generation)) continue;
    const double rate = generation->rate.TokensPerSecond(state.now(), since);
    if (rate > 0) {
      rates.push_back(rate);
    } else {
      ++*n_warming;
    }
  }
  return rates;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

int32_t FreeSequences(const EngineState& state) {
  int32_t n = state.session_seqs.count() - state.session_seqs.n_used();
  for (const auto& [id, session] : state.sessions) {
    const bool idle = !session->running && session->sequence.id != kNoSeq;
    if (idle) ++n;
  }
  return n;
}

// Sessions that the pool's policy, if it has any, or the pool alone counts.
GovernedLoad LoadOf(const EngineState& state, const PoolNode& pool) {
  const PoolNode* const governor = GoverningPoolOrNull(state, &pool);
  const auto covers = [&](const Session& session) {
    return governor != nullptr ? Governs(state, governor->id, session) : session.pool_id == pool.id;
  };
  GovernedLoad load;
  std::vector<double> suffixes;
  for (const auto& [id, session] : state.sessions) {
    if (!session->admitted || !covers(*session)) continue;
    ++(Attached(*session, state.now()) ? load.n_attached : load.n_idle);
    load.n_running += session->running ? 1 : 0;
    if (session->sequence.n_private() > 0) suffixes.push_back(session->sequence.n_private());
  }
  load.mean_private_cells = Mean(suffixes);
  load.mean_tps = Mean(Rates(
      state,
      [&](const Generation& generation) {
        return generation.session != nullptr && covers(*generation.session);
      },
      &load.n_warming));
  return load;
}

ServerLoad LoadOfServer(const EngineState& state) {
  ServerLoad load;
  int32_t n_warming = 0;
  load.n_decoding =
      static_cast<int32_t>(Rates(state, [](const Generation&) { return true; }, &n_warming).size());
  load.n_running = static_cast<int32_t>(state.running.size());
  load.cells_total = state.cache.total();
  load.cells_available = std::max(
      0, state.cache.free() + ReclaimableCells(state, nullptr, nullptr) - ReservedCells(state));
  for (const auto& [id, session] : state.sessions) {
    const double share =
        static_cast<double>(session->sequence.n_tokens()) / std::max(1, state.config.n_ctx_session);
    load.largest_share = std::max(load.largest_share, share);
  }
  load.seq_ids_free = FreeSequences(state);
  if (!state.backend->info().unified) load.streams_free = load.seq_ids_free;
  return load;
}

}  // namespace

const PoolNode* GoverningPoolOrNull(const EngineState& state, const PoolNode* pool) {
  while (pool != nullptr && !state.governors.contains(pool->id)) pool = pool->parent.get();
  return pool;
}

const PoolNode* GoverningPoolOrNull(const EngineState& state, PoolId pool) {
  return GoverningPoolOrNull(state, state.pools.FindOrNull(pool).get());
}

double GovernedMean(const EngineState& state, PoolId governor, TimeUs since) {
  int32_t n_warming = 0;
  const auto covers = [&](const Generation& generation) {
    return generation.session != nullptr && Governs(state, governor, *generation.session);
  };
  return Mean(Rates(state, covers, &n_warming, since));
}

LoadPicture PictureFor(const EngineState& state, const PoolNode& pool) {
  return {.governed = LoadOf(state, pool), .server = LoadOfServer(state)};
}

Verdict JudgeAdmission(const EngineState& state, const PoolNode& pool, const LoadPicture& picture,
                       const Applicant& applicant) {
  Question question{.governed = picture.governed, .server = picture.server, .applicant = applicant};
  const PoolNode* const governor = GoverningPoolOrNull(state, &pool);
  std::vector<Neighbour> neighbours;
  if (governor != nullptr) {
    const Governor& own = state.governors.at(governor->id);
    question.policy = &own.policy;
    question.forecast = own.settle.Look(own.policy, state.now());
    for (const auto& [id, other] : state.governors) {
      if (id == governor->id || other.policy.mode != AdmissionPolicy::Mode::kEnforced) continue;
      const auto node = state.pools.FindOrNull(id);
      const bool is_known = node != nullptr && node->origin.tenant == pool.origin.tenant;
      neighbours.push_back({.pool_id = is_known ? id : kNoPool,
                            .policy = other.policy,
                            .governed = node != nullptr ? LoadOf(state, *node) : GovernedLoad{},
                            .forecast = other.settle.Look(other.policy, state.now())});
    }
  }
  question.neighbours = neighbours;
  return Judge(question, state.now());
}

}  // namespace polykv
