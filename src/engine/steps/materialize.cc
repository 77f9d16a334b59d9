#include "engine/steps/materialize.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/record.h"
#include "engine/steps/idle_tier.h"
#include "engine/steps/pressure.h"

namespace polykv {
namespace {

constexpr double kUsPerMs = 1e3;

Problem NoFreeSequence() {
  return {.status = 503,
          .type = "no_free_sequence",
          .message = "every pool sequence is in use; release a pool or raise --polykv-max-pools",
          .retry_after_s = 5};
}

Problem NoFreeCells(int32_t wanted, int32_t available) {
  return {.status = 503,
          .type = "no_free_cells",
          .message = "the pool needs " + std::to_string(wanted) + " cells and " +
                     std::to_string(std::max(0, available)) +
                     " can be had; release a pool or end sessions",
          .retry_after_s = 5};
}

void RemoveJob(EngineState& state, const PoolNode* node) {
  state.materializing.remove_if([node](const auto& job) { return job.node.get() == node; });
}

// The job is over; everybody who waits gets `problem`.
void DropJob(EngineState& state, const PoolNode* node, const Problem& problem) {
  Materialization* const job = FindJob(state, node);
  if (job == nullptr) return;
  for (const Materialization::Waiter& waiter : job->waiters) state.Answer(waiter.channel, problem);
  RemoveJob(state, node);
}

// A sequence and how many of a pool's first tokens it holds as the pool's own cells, or in a split
// cache as any.
struct Holder {
  SeqId seq = kNoSeq;
  Pos length = 0;
};

Holder FindHolder(const EngineState& state, const PoolNode& node) {
  Holder best;
  const auto consider = [&best](SeqId seq, Pos length) {
    if (seq != kNoSeq && length > best.length) best = {seq, length};
  };
  const bool unified = state.backend->info().unified;
  for (const auto& [id, other] : state.pools.nodes()) {
    const bool child = other->parent.get() == &node && other->residency == Residency::kResident;
    consider(other->seq,
             unified ? PoolTree::HeldThrough(other->base, node) : (child ? other->branch_pos : 0));
  }
  if (!unified) return best;
  for (const Slot& slot : state.slots) {
    consider(slot.own.id, PoolTree::HeldThrough(slot.own.lease, node));
  }
  for (const auto& [id, session] : state.sessions) {
    consider(session->sequence.id, PoolTree::HeldThrough(session->sequence.lease, node));
  }
  return best;
}

// What others still hold of a pool that was evicted while they did.
void RegainFromHolder(EngineState& state, Materialization& job) {
  PoolNode& node = *job.node;
  if (state.backend->info().sharing != Sharing::kAnyPosition) return;
  const Holder holder = FindHolder(state, node);
  const bool parent_has_more =
      holder.length <= node.shared_len && node.base.node() == node.parent.get();
  if (holder.length == 0 || parent_has_more) return;
  state.cache.Regain(node, holder.seq, holder.length);
  job.begun = true;
}

// The parent's cells become the pool's as far as the model allows. False: they are not there yet.
bool BranchFromParent(EngineState& state, Materialization& job) {
  PoolNode& node = *job.node;
  Pos length = 0;
  if (node.branch_pos > 0) {
    if (node.parent->residency != Residency::kResident) return false;
    const ShareVerdict verdict =
        state.cache.MayShare(node.parent->seq, node.parent->length(), node.branch_pos,
                             /*tokens_remain=*/node.branch_pos < node.length());
    job.miss_reason = verdict.reason;
    length = verdict.length;
  }
  if (length > 0) {
    state.cache.Branch(node, length);
  } else {
    state.pools.BeginOn(node, {});
  }
  return true;
}

// What of the pool can be had without computing is there. False: the parent's cells are not there
// yet.
bool Begin(EngineState& state, Materialization& job) {
  if (!job.begun && !BranchFromParent(state, job)) return false;
  job.begun = true;
  RestorePool(state, *job.node);
  return true;
}

void RecordSealed(EngineState& state, const Materialization& job) {
  const PoolNode& node = *job.node;
  Record(state, job.rebuild ? EventKind::kPoolRebuilt : EventKind::kPoolSealed, node,
         {{"prefix_len", node.length()},
          {"shared_len", node.shared_len},
          {"n_prefilled", job.n_computed},
          {"prefill_ms", static_cast<double>(state.now() - job.since) / kUsPerMs}});
}

// The pool gives its sequence and its cells back.
void FreeCells(EngineState& state, PoolNode& node) {
  const SeqId seq = state.cache.DropPool(node);
  if (seq != kNoSeq) state.pool_seqs.Free(seq);
  state.changed = true;
}

// A parent that was evicted in between is asked for again.
std::optional<Problem> WantParent(EngineState& state, const PoolNode& node) {
  const bool evicted = node.parent != nullptr && node.parent->residency == Residency::kEvicted;
  return evicted ? RebuildPool(state, node.parent) : std::nullopt;
}

}  // namespace

Problem PoolNotFound(const std::string& pool) {
  return {.status = 404, .type = "pool_not_found", .message = "there is no pool " + pool};
}

int32_t OwnCells(const EngineState& state, const PoolNode& node) {
  const bool shares =
      state.backend->info().unified && state.backend->info().sharing != Sharing::kOff;
  return node.length() - (shares ? node.branch_pos : 0);
}

Result<SeqId> AcquirePoolSequence(EngineState& state, int32_t n_cells, const PoolNode* keep) {
  const int32_t available =
      state.cache.free() + ReclaimableCells(state, nullptr, keep) - ReservedCells(state);
  if (n_cells > available) return NoFreeCells(n_cells, available);
  if (const auto seq = state.pool_seqs.Allocate()) return *seq;
  const auto victim = state.pools.EvictableOrNull(keep);
  if (victim == nullptr) return NoFreeSequence();
  EvictToHost(state, *victim);
  return *state.pool_seqs.Allocate();
}

Materialization& StartMaterializing(EngineState& state, std::shared_ptr<PoolNode> node) {
  Materialization& job = state.materializing.emplace_back();
  job.node = std::move(node);
  job.since = state.now();
  state.changed = true;
  return job;
}

void EndIfResident(EngineState& state, Materialization& job) {
  PoolNode& node = *job.node;
  if (node.residency != Residency::kResident) return;
  node.last_access = state.now();
  for (const Materialization::Waiter& waiter : job.waiters) {
    state.Answer(waiter.channel, Describe(state, node, waiter.created ? &job : nullptr));
  }
  RecordSealed(state, job);
  state.changed = true;
  RemoveJob(state, &node);
}

Materialization* FindJob(EngineState& state, const PoolNode* node) {
  const auto it =
      std::find_if(state.materializing.begin(), state.materializing.end(),
                   [node](const Materialization& job) { return job.node.get() == node; });
  return it == state.materializing.end() ? nullptr : &*it;
}

PoolCreated Describe(const EngineState& state, const PoolNode& node, const Materialization* job) {
  PoolCreated created{.pool_id = node.id,
                      .name = node.names.empty() ? "" : node.names.front(),
                      .parent = node.parent != nullptr ? node.parent->id : kNoPool,
                      .branch_pos = node.branch_pos,
                      .shared_len = node.shared_len,
                      .prefix_len = node.length(),
                      .prefix_hash = node.prefix.hashes.back(),
                      .own_kv_bytes = node.OwnedCells() * state.backend->info().bytes_per_cell,
                      .created = job != nullptr,
                      .ready = node.residency == Residency::kResident};
  if (job == nullptr) return created;
  created.n_prefilled = job->n_computed;
  created.prefill_ms = static_cast<double>(state.now() - job->since) / kUsPerMs;
  created.miss_reason = job->miss_reason;
  return created;
}

std::optional<Problem> RebuildPool(EngineState& state, const std::shared_ptr<PoolNode>& node) {
  POLYKV_CHECK(node->residency == Residency::kEvicted);
  if (node->branch_pos > 0) {
    if (auto problem = WantParent(state, *node)) return problem;
  }
  const Result<SeqId> seq = AcquirePoolSequence(state, OwnCells(state, *node), node.get());
  if (!seq.ok()) return seq.problem();
  state.pools.BeginRebuild(*node, seq.value());
  Materialization& job = StartMaterializing(state, node);
  job.rebuild = true;
  job.wanted = true;
  RegainFromHolder(state, job);
  Begin(state, job);
  EndIfResident(state, job);
  return std::nullopt;
}

bool BeginPools(EngineState& state) {
  bool any_ended = false;
  std::vector<std::shared_ptr<PoolNode>> nodes;
  for (const Materialization& job : state.materializing) nodes.push_back(job.node);
  for (const auto& node : nodes) {
    Materialization* job = FindJob(state, node.get());
    if (job == nullptr) continue;  // failed with its parent
    if (!job->begun) {
      if (auto problem = WantParent(state, *node)) {
        FailPool(state, node, *problem);
        any_ended = true;
        continue;
      }
      if (!Begin(state, *job)) continue;
    }
    EndIfResident(state, *job);
    any_ended = any_ended || node->residency == Residency::kResident;
  }
  return any_ended;
}

void AdvancePool(EngineState& state, Materialization& job, int32_t n_tokens) {
  state.pools.AddMaterialized(*job.node, n_tokens);
  job.n_computed += n_tokens;
  state.counters.pool_prefilled_tokens += static_cast<uint64_t>(n_tokens);
  EndIfResident(state, job);
}

void FailPool(EngineState& state, const std::shared_ptr<PoolNode>& failed, const Problem& problem) {
  // A copy, since `failed` may be the job's own, and the job goes.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::shared_ptr<PoolNode> node = failed;
  const Materialization* const job = FindJob(state, node.get());
  if (job == nullptr) return;
  const bool rebuild = job->rebuild;
  node->refs -= static_cast<int32_t>(job->waiters.size());
  std::vector<std::shared_ptr<PoolNode>> dependents;
  for (const Materialization& other : state.materializing) {
    if (other.node->parent == node && !other.begun) dependents.push_back(other.node);
  }
  for (const auto& dependent : dependents) FailPool(state, dependent, problem);
  DropJob(state, node.get(), problem);
  FreeCells(state, *node);
  Record(state, EventKind::kPoolFailed, *node,
         {{"error", problem.type}, {"message", problem.message}, {"rebuild", rebuild}});
  if (rebuild) return;
  if (node->n_children == 0) return state.pools.Release(node);
  if (node->refs == 0) node->release_at = std::max<TimeUs>(1, state.now());
}

void EvictPool(EngineState& state, PoolNode& node) {
  const int32_t n_owned = node.OwnedCells();
  FreeCells(state, node);
  const bool saved = state.host.FindOrNull(HostKind::kPool, node.id) != nullptr;
  Record(state, EventKind::kPoolEvicted, node,
         {{"n_cells", n_owned - node.OwnedCells()}, {"saved", saved}});
}

void ReleasePool(EngineState& state, const std::shared_ptr<PoolNode>& node) {
  DropJob(state, node.get(),
          {.status = 410, .type = "pool_released", .message = "the pool was released"});
  FreeCells(state, *node);
  ForgetCooled(state, *node);
  state.governors.erase(node->id);
  Record(state, EventKind::kPoolReleased, *node);
  state.pools.Release(node);
}

}  // namespace polykv
