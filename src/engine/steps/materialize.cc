#include "engine/steps/materialize.h"

#include <algorithm>

#include "base/check.h"
#include "engine/steps/pressure.h"
#include "engine/steps/retire.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;

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

// Why this server makes no pools at all.
std::string NoPoolsReason(const ModelInfo& info) {
  return info.unified ? "started with --polykv-max-pools 0"
                      : "started with --no-kv-unified and no --polykv-max-pools";
}

PoolCreated Describe(const EngineState& state, const PoolNode& node, bool created, TimeUs since) {
  return {.pool_id = node.id,
          .name = node.names.empty() ? "" : node.names.front(),
          .prefix_len = node.length(),
          .prefix_hash = node.prefix.hashes.back(),
          .own_kv_bytes = node.OwnedCells() * state.backend->info().bytes_per_cell,
          .created = created,
          .ready = node.residency == Residency::kResident,
          .n_prefilled = created ? node.n_materialized : 0,
          .prefill_ms = created ? static_cast<double>(state.now() - since) / kUsPerMs : 0.0};
}

// A sequence for a pool of `n_tokens`, with cells to be had for it; evicts unused pools for that.
Result<SeqId> AcquirePoolSequence(EngineState& state, int32_t n_tokens, const PoolNode* keep) {
  const int32_t available =
      state.cache.free() + ReclaimableCells(state, nullptr, keep) - ReservedCells(state);
  if (n_tokens > available) return NoFreeCells(n_tokens, available);
  if (const auto seq = state.pool_seqs.Allocate()) return *seq;
  const auto victim = state.pools.EvictableOrNull(keep);
  if (victim == nullptr) return NoFreeSequence();
  EvictPool(state, *victim);
  return *state.pool_seqs.Allocate();
}

Materialization* FindJob(EngineState& state, const PoolNode* node) {
  const auto it =
      std::find_if(state.materializing.begin(), state.materializing.end(),
                   [node](const Materialization& job) { return job.node.get() == node; });
  return it == state.materializing.end() ? nullptr : &*it;
}

// Everybody who waits gets `problem`; the job is over.
void DropJob(EngineState& state, Materialization& job, const Problem& problem) {
  for (const Materialization::Waiter& waiter : job.waiters) {
    state.Answer(waiter.channel, problem);
  }
  state.materializing.remove_if([&job](const Materialization& other) { return &other == &job; });
}

void Answer(EngineState& state, const CreatePool& command, Result<PoolCreated> answer) {
  state.Answer(command.channel, std::move(answer));
  state.changed = true;
}

// An equal pool is there: one more reference, and a wait if its cells are still on their way.
void JoinPool(EngineState& state, CreatePool& command, const std::shared_ptr<PoolNode>& node) {
  if (node->residency == Residency::kEvicted) {
    if (auto problem = RebuildPool(state, node)) return Answer(state, command, std::move(*problem));
  }
  if (!command.name.empty() && state.pools.FindOrNull(command.name) == nullptr) {
    state.pools.AddName(*node, command.name);
  }
  ++node->refs;
  node->release_at = 0;
  node->pinned = node->pinned || command.pin;
  node->last_access = state.now();
  Materialization* job = FindJob(state, node.get());
  if (job != nullptr && command.wait) {
    job->waiters.push_back({command.channel, false});
    return;
  }
  if (job != nullptr) job->wanted = true;
  Answer(state, command, Describe(state, *node, false, state.now()));
}

// Without references: the grace starts once and a repeated request does not prolong it.
void ScheduleRelease(EngineState& state, const std::shared_ptr<PoolNode>& node, bool force) {
  const TimeUs at = state.now() + (force ? 0 : state.config.grace_ms * kUsPerMs);
  node->release_at = node->release_at == 0 ? at : std::min(at, node->release_at);
  if (force && !node->pinned) ReleasePool(state, node);
}

}  // namespace

void HandleCreatePool(EngineState& state, CreatePool command) {
  if (!state.backend->info().generates) {
    return Answer(state, command,
                  Problem{.status = 501,
                          .type = "not_supported_error",
                          .message = "this model computes embeddings only: nothing to share"});
  }
  if (state.config.max_pools == 0) {
    return Answer(
        state, command,
        Problem{.status = 501,
                .type = "not_supported_error",
                .message = "this server has no pools: " + NoPoolsReason(state.backend->info())});
  }
  const auto named = command.name.empty() ? nullptr : state.pools.FindOrNull(command.name);
  if (named != nullptr &&
      (named->prefix.tokens != command.tokens || named->adapters != state.adapters)) {
    return Answer(state, command,
                  Problem{.status = 409,
                          .type = "name_taken",
                          .message = "pool " + std::to_string(named->id) +
                                     " has this name and other tokens or adapters"});
  }
  if (named != nullptr) return JoinPool(state, command, named);
  const auto equal =
      command.unique ? nullptr : state.pools.FindRootOrNull(command.tokens, state.adapters);
  if (equal != nullptr) return JoinPool(state, command, equal);
  const int32_t n_tokens = static_cast<int32_t>(command.tokens.size());
  if (n_tokens > state.config.n_ctx_session) {
    return Answer(state, command,
                  Problem{.status = 400,
                          .type = "exceed_context_size_error",
                          .message = "the prefix is longer than the context",
                          .n_prompt_tokens = n_tokens,
                          .n_ctx = state.config.n_ctx_session});
  }
  const Result<SeqId> seq = AcquirePoolSequence(state, n_tokens, nullptr);
  if (!seq.ok()) return Answer(state, command, seq.problem());
  const TimeUs now = state.now();
  const auto node =
      state.pools.CreateRoot(std::move(command.tokens), state.adapters, seq.value(), now);
  if (!command.name.empty()) state.pools.AddName(*node, command.name);
  node->pinned = command.pin;
  Materialization& job = state.materializing.emplace_back();
  job.node = node;
  job.since = now;
  job.wanted = !command.wait;
  state.changed = true;
  if (command.wait) {
    job.waiters.push_back({command.channel, true});
  } else {
    Answer(state, command, Describe(state, *node, true, now));
  }
}

std::optional<Problem> RebuildPool(EngineState& state, const std::shared_ptr<PoolNode>& node) {
  const Result<SeqId> seq = AcquirePoolSequence(state, node->length(), node.get());
  if (!seq.ok()) return seq.problem();
  state.pools.BeginRebuild(*node, seq.value());
  Materialization& job = state.materializing.emplace_back();
  job.node = node;
  job.since = state.now();
  job.rebuild = true;
  job.wanted = true;
  state.changed = true;
  return std::nullopt;
}

void AdvancePool(EngineState& state, Materialization& job, int32_t n_tokens) {
  PoolNode& node = *job.node;
  state.pools.AddMaterialized(node, n_tokens);
  state.counters.pool_prefilled_tokens += static_cast<uint64_t>(n_tokens);
  if (node.residency != Residency::kResident) return;
  node.last_access = state.now();
  for (const Materialization::Waiter& waiter : job.waiters) {
    state.Answer(waiter.channel, Describe(state, node, waiter.created, job.since));
  }
  state.changed = true;
  state.materializing.remove_if([&job](const Materialization& other) { return &other == &job; });
}

void FailPool(EngineState& state, Materialization& job, const Problem& problem) {
  const std::shared_ptr<PoolNode> node = job.node;
  const bool rebuild = job.rebuild;
  node->refs -= static_cast<int32_t>(job.waiters.size());
  DropJob(state, job, problem);
  EvictPool(state, *node);
  if (!rebuild) state.pools.Release(node);
}

void EvictPool(EngineState& state, PoolNode& node) {
  const SeqId seq = state.cache.DropPool(node);
  if (seq != kNoSeq) state.pool_seqs.Free(seq);
  state.changed = true;
}

void ReleasePool(EngineState& state, const std::shared_ptr<PoolNode>& node) {
  if (Materialization* job = FindJob(state, node.get())) {
    DropJob(state, *job,
            {.status = 410, .type = "pool_released", .message = "the pool was released"});
  }
  EvictPool(state, *node);
  state.pools.Release(node);
}

void HandleChangePool(EngineState& state, ChangePool& command) {
  const auto answer = [&](Result<PoolStatus> result) {
    state.changed = true;
    state.Answer(command.channel, std::move(result));
  };
  const auto node = state.pools.FindOrNull(command.pool);
  if (node == nullptr) {
    return answer(Problem{
        .status = 404, .type = "pool_not_found", .message = "there is no pool " + command.pool});
  }
  switch (command.action) {
    case ChangePool::Action::kPin:
      node->pinned = true;
      node->pinned_until = command.ttl_ms ? state.now() + *command.ttl_ms * kUsPerMs : 0;
      break;
    case ChangePool::Action::kUnpin:
      node->pinned = false;
      node->pinned_until = 0;
      break;
    case ChangePool::Action::kRelease:
      if (node->n_children > 0) {
        return answer(Problem{
            .status = 409, .type = "pool_has_children", .message = "release its children first"});
      }
      if (node->refs > 0) --node->refs;
      if (node->refs == 0) ScheduleRelease(state, node, command.force);
      break;
  }
  PoolStatus status{.pool_id = node->id, .refs = node->refs, .pinned = node->pinned};
  status.released = node->released || (node->release_at > 0 && !node->pinned);
  if (status.released && !node->released) {
    status.release_in_ms = std::max<TimeUs>(0, node->release_at - state.now()) / kUsPerMs;
  }
  answer(status);
}

}  // namespace polykv
