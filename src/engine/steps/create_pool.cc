#include "engine/steps/create_pool.h"

#include <algorithm>
#include <utility>

#include "engine/record.h"
#include "engine/steps/change_pool.h"
#include "engine/steps/idle_tier.h"
#include "engine/steps/materialize.h"
#include "pool/prefix.h"

namespace polykv {
namespace {

void Answer(EngineState& state, const CreatePool& command, Result<PoolCreated> answer) {
  state.Answer(command.channel, std::move(answer));
  state.changed = true;
}

Problem NotSupported(std::string message) {
  return {.status = 501, .type = "not_supported_error", .message = std::move(message)};
}

// Why this server makes no pools at all; nothing if it does.
std::optional<Problem> NoPools(const EngineState& state) {
  const ModelInfo& info = state.backend->info();
  if (!info.generates) return NotSupported("this model computes embeddings only: nothing to share");
  if (state.config.max_pools > 0) return std::nullopt;
  return NotSupported(info.unified ? "this server has no pools: started with --polykv-max-pools 0"
                                   : "this server has no pools: in a split cache (--no-kv-unified) "
                                     "start it with --polykv-max-pools N");
}

// What is to be made: the command with everything settled that it left to us.
struct Plan {
  std::shared_ptr<PoolNode> parent;
  Pos branch_pos = 0;
  std::vector<Token> tokens;
  CellOrigin origin;
  std::shared_ptr<Session> session;  // whose cells it takes; null: it is computed
};

// Whether the session's request waits for cells, so that the cache has a part of it only.
bool IsParked(const EngineState& state, const Session& session) {
  return std::any_of(state.running.begin(), state.running.end(), [&](const auto& generation) {
    return generation->session.get() == &session && generation->parked.has_value();
  });
}

std::optional<Problem> TakeSession(EngineState& state, const CreatePool& command, Plan* plan) {
  const auto found = state.sessions.find({command.tenant, command.from_session});
  if (found == state.sessions.end()) {
    return Problem{.status = 404,
                   .type = "session_not_found",
                   .message = "there is no session " + command.from_session};
  }
  plan->session = found->second;
  if (IsParked(state, *plan->session)) {
    return Problem{.status = 503,
                   .type = "session_parked",
                   .message = "the session's request waits for cells: try again when it goes on",
                   .retry_after_s = 5};
  }
  const Sequence& sequence = plan->session->sequence;
  if (plan->session->cooled && sequence.id != kNoSeq) WarmSession(state, *plan->session, nullptr);
  if (sequence.tokens.empty()) {
    return Problem{.status = 409,
                   .type = "session_empty",
                   .message = "the session holds no tokens now: send it a request first"};
  }
  plan->tokens = sequence.tokens;
  plan->origin = sequence.origin;
  return std::nullopt;
}

Problem Mismatch(Pos position, const std::string& why) {
  return {.status = 409,
          .type = "prefix_mismatch",
          .message = why + ": it agrees with the parent in the first " + std::to_string(position) +
                     " tokens",
          .mismatch_pos = position};
}

// Where the fork leaves its parent, whose tokens up to there become its own if they are missing.
std::optional<Problem> PlaceFork(const EngineState& state, const CreatePool& command, Plan* plan) {
  const PoolNode& parent = *plan->parent;
  if (command.branch_pos.has_value() && *command.branch_pos > parent.length()) {
    return InvalidRequest("branch_pos is " + std::to_string(*command.branch_pos) +
                          ", but the parent has " + std::to_string(parent.length()) + " tokens");
  }
  if (command.append) {
    plan->branch_pos = command.branch_pos.value_or(parent.length());
    plan->tokens.insert(plan->tokens.begin(), parent.prefix.tokens.begin(),
                        parent.prefix.tokens.begin() + plan->branch_pos);
  } else {
    const bool same_origin = plan->origin == parent.origin;  // a session may have other adapters
    const Pos n_common = same_origin ? LongestCommonPrefix(plan->tokens, parent.prefix.tokens) : 0;
    plan->branch_pos = command.branch_pos.value_or(n_common);
    if (plan->branch_pos > n_common) {
      return Mismatch(n_common, "the prefix does not begin with the parent's first " +
                                    std::to_string(plan->branch_pos) + " tokens");
    }
  }
  if (plan->tokens.empty()) return InvalidRequest("a pool needs at least one token");
  const bool at_tip = state.backend->info().sharing == Sharing::kAtTip;
  if (at_tip && plan->session == nullptr && plan->branch_pos < parent.length()) {
    return Mismatch(plan->branch_pos,
                    "this model's recurrent state can be shared at the parent's end only "
                    "(branch_pos " +
                        std::to_string(parent.length()) + ")");
  }
  return std::nullopt;
}

Result<Plan> MakePlan(EngineState& state, CreatePool& command) {
  Plan plan;
  plan.tokens = std::move(command.tokens);
  plan.origin = {state.adapters, command.tenant};
  if (!command.parent.empty()) {
    plan.parent = state.pools.FindOrNull(command.tenant, command.parent);
    if (plan.parent == nullptr) return PoolNotFound(command.parent);
    plan.origin = plan.parent->origin;
  }
  if (!command.from_session.empty()) {
    if (auto problem = TakeSession(state, command, &plan)) return *std::move(problem);
  }
  if (plan.parent != nullptr) {
    if (auto problem = PlaceFork(state, command, &plan)) return *std::move(problem);
  }
  const auto n_tokens = static_cast<int32_t>(plan.tokens.size());
  if (n_tokens > state.config.n_ctx_session) {
    return Problem{.status = 400,
                   .type = "exceed_context_size_error",
                   .message = "the prefix is longer than the context",
                   .n_prompt_tokens = n_tokens,
                   .n_ctx = state.config.n_ctx_session};
  }
  return plan;
}

// The pool that the command means, if it is there already.
Result<std::shared_ptr<PoolNode>> FindExisting(const EngineState& state, const CreatePool& command,
                                               const Plan& plan) {
  const auto named =
      command.name.empty() ? nullptr : state.pools.FindOrNull(command.tenant, command.name);
  if (named == nullptr) {
    return command.unique
               ? nullptr
               : state.pools.FindEqualOrNull(plan.parent.get(), plan.tokens, plan.origin);
  }
  if (named->prefix.tokens == plan.tokens && named->origin == plan.origin) return named;
  return Problem{.status = 409,
                 .type = "name_taken",
                 .message = "pool " + std::to_string(named->id) +
                            " has this name and other tokens or adapters"};
}

// One more reference, and a wait if the pool's cells are still on their way.
void Join(EngineState& state, const CreatePool& command, const std::shared_ptr<PoolNode>& node) {
  if (node->residency == Residency::kEvicted) {
    if (auto problem = RebuildPool(state, node)) return Answer(state, command, std::move(*problem));
  }
  if (!command.name.empty() && state.pools.FindOrNull(command.tenant, command.name) == nullptr) {
    state.pools.AddName(*node, command.name);
  }
  ++node->refs;
  node->release_at = 0;
  if (command.pin) PinPool(state, *node, "", /*until=*/0);
  node->last_access = state.now();
  Materialization* job = FindJob(state, node.get());
  if (job != nullptr && command.wait) {
    job->waiters.push_back({command.channel, false});
    return;
  }
  if (job != nullptr) job->wanted = true;
  Answer(state, command, Describe(state, *node, nullptr));
}

void RecordCreated(EngineState& state, const CreatePool& command, const PoolNode& node) {
  Facts facts;  // added one by one: the compiler sees a list of them as not initialized
  facts.emplace_back("name", command.name);
  facts.emplace_back("parent", node.parent != nullptr ? Fact(node.parent->id) : Fact());
  facts.emplace_back("branch_pos", node.branch_pos);
  facts.emplace_back("prefix_len", node.length());
  facts.emplace_back("from_session", command.from_session);
  Record(state, node.parent != nullptr ? EventKind::kPoolForked : EventKind::kPoolCreated, node,
         std::move(facts));
}

void Create(EngineState& state, const CreatePool& command, Plan plan) {
  const bool copies = plan.session == nullptr || !state.backend->info().unified;
  const bool branches = state.backend->info().unified && plan.branch_pos > 0;
  const auto n_tokens = static_cast<int32_t>(plan.tokens.size());
  if (plan.session == nullptr && branches && plan.parent->residency == Residency::kEvicted) {
    if (auto problem = RebuildPool(state, plan.parent)) return Answer(state, command, *problem);
  }
  const int32_t n_cells = copies ? n_tokens - (branches ? plan.branch_pos : 0) : 0;
  const Result<SeqId> seq = AcquirePoolSequence(state, n_cells, plan.parent.get());
  if (!seq.ok()) return Answer(state, command, seq.problem());
  const auto node = state.pools.Create({.parent = plan.parent,
                                        .branch_pos = plan.branch_pos,
                                        .tokens = std::move(plan.tokens),
                                        .origin = std::move(plan.origin),
                                        .seq = seq.value(),
                                        .now = state.now()});
  if (!command.name.empty()) state.pools.AddName(*node, command.name);
  RecordCreated(state, command, *node);
  if (command.pin) PinPool(state, *node, "", /*until=*/0);
  Materialization& job = StartMaterializing(state, node);
  if (plan.session != nullptr) {
    state.cache.Snapshot(plan.session->sequence, node);
    job.begun = true;
  }
  if (command.wait) {
    job.waiters.push_back({command.channel, true});
  } else {
    job.wanted = true;
    Answer(state, command, Describe(state, *node, &job));
  }
  EndIfResident(state, job);
}

}  // namespace

void HandleCreatePool(EngineState& state, CreatePool command) {
  if (auto problem = NoPools(state)) return Answer(state, command, *std::move(problem));
  Result<Plan> plan = MakePlan(state, command);
  if (!plan.ok()) return Answer(state, command, plan.problem());
  const Result<std::shared_ptr<PoolNode>> existing = FindExisting(state, command, plan.value());
  if (!existing.ok()) return Answer(state, command, existing.problem());
  if (existing.value() != nullptr) return Join(state, command, existing.value());
  Create(state, command, std::move(plan.value()));
}

}  // namespace polykv
