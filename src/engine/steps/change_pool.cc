#include "engine/steps/change_pool.h"

#include <algorithm>
#include <utility>

#include "engine/record.h"
#include "engine/steps/materialize.h"

namespace polykv {
namespace {

constexpr TimeUs kUsPerMs = 1'000;

Problem Conflict(std::string type, std::string message) {
  return {.status = 409, .type = std::move(type), .message = std::move(message)};
}

// Without references: the grace starts once and a repeated request does not prolong it.
void DropReference(EngineState& state, const std::shared_ptr<PoolNode>& node, bool force) {
  if (node->refs > 0) --node->refs;
  if (node->refs > 0) return;
  const TimeUs at = state.now() + (force ? 0 : state.config.grace_ms * kUsPerMs);
  node->release_at = node->release_at == 0 ? at : std::min(at, node->release_at);
  if (force && !node->pinned() && node->n_children == 0) ReleasePool(state, node);
}

std::optional<Problem> Release(EngineState& state, const std::shared_ptr<PoolNode>& node,
                               const ChangePool& command) {
  if (node->n_children > 0 && node->refs <= 1 && !command.subtree) {
    return Conflict("pool_has_children",
                    "the pool has children: release them first, or with ?subtree=1");
  }
  if (!command.subtree) {
    DropReference(state, node, command.force);
    return std::nullopt;
  }
  const auto subtree = state.pools.Subtree(node);
  for (auto it = subtree.rbegin(); it != subtree.rend(); ++it) {
    DropReference(state, *it, command.force);
  }
  return std::nullopt;
}

std::optional<Problem> Evict(EngineState& state, PoolNode& node) {
  if (node.residency == Residency::kEvicted) return std::nullopt;
  if (node.residency == Residency::kMaterializing) {
    return Conflict("pool_materializing", "the pool's cells are being computed");
  }
  if (node.pinned()) return Conflict("pool_pinned", "the pool is pinned: unpin it first");
  if (!node.leases.empty() && state.backend->info().sharing != Sharing::kAnyPosition) {
    return Conflict("pool_in_use",
                    "sessions or children hold its cells, and this model's memory could not be "
                    "put together again from theirs");
  }
  EvictPool(state, node);
  return std::nullopt;
}

int32_t Flush(EngineState& state, const std::shared_ptr<PoolNode>& root) {
  int32_t n_evicted = 0;
  const auto subtree = state.pools.Subtree(root);
  for (auto it = subtree.rbegin(); it != subtree.rend(); ++it) {
    if (!PoolTree::Evictable(**it)) continue;
    EvictPool(state, **it);
    ++n_evicted;
  }
  return n_evicted;
}

void Pin(EngineState& state, PoolNode& node, const ChangePool& command) {
  PinPool(state, node, command.pin_key,
          command.ttl_ms ? state.now() + *command.ttl_ms * kUsPerMs : 0);
}

// Takes away the pins of which `ends` is true.
template <typename Ends>
void Unpin(EngineState& state, PoolNode& node, const Ends& ends) {
  const size_t n_ended = std::erase_if(node.pins, ends);
  if (n_ended > 0 && !node.pinned()) Record(state, EventKind::kPoolUnpinned, node);
}

Result<PoolStatus> Change(EngineState& state, const std::shared_ptr<PoolNode>& node,
                          const ChangePool& command) {
  std::optional<Problem> problem;
  const bool was_evicted = node->residency == Residency::kEvicted;
  int32_t n_evicted = 0;
  switch (command.action) {
    case ChangePool::Action::kPin:
      Pin(state, *node, command);
      break;
    case ChangePool::Action::kUnpin:
      Unpin(state, *node, [&](const auto& pin) { return pin.first == command.pin_key; });
      break;
    case ChangePool::Action::kEvict:
      problem = Evict(state, *node);
      n_evicted = was_evicted ? 0 : 1;
      break;
    case ChangePool::Action::kFlush:
      n_evicted = Flush(state, node);
      break;
    case ChangePool::Action::kRelease:
      problem = Release(state, node, command);
      break;
  }
  if (problem) return *std::move(problem);
  PoolStatus status{.pool_id = node->id,
                    .refs = node->refs,
                    .pinned = node->pinned(),
                    .n_evicted = n_evicted,
                    .released = node->released || (node->release_at > 0 && !node->pinned())};
  if (status.released && !node->released) {
    status.release_in_ms = std::max<TimeUs>(0, node->release_at - state.now()) / kUsPerMs;
  }
  return status;
}

}  // namespace

void PinPool(EngineState& state, PoolNode& node, const std::string& key, TimeUs until) {
  const bool was_pinned = node.pinned();
  node.pins[key] = until;
  if (!was_pinned) Record(state, EventKind::kPoolPinned, node);
}

void HandleChangePool(EngineState& state, ChangePool& command) {
  state.changed = true;
  const auto node = state.pools.FindOrNull(command.tenant, command.pool);
  if (node == nullptr) return state.Answer(command.channel, PoolNotFound(command.pool));
  state.Answer(command.channel, Change(state, node, command));
}

void ReapPools(EngineState& state) {
  const TimeUs now = state.now();
  std::vector<std::shared_ptr<PoolNode>> nodes;
  for (const auto& [id, node] : state.pools.nodes()) nodes.push_back(node);
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    PoolNode& node = **it;
    Unpin(state, node, [now](const auto& pin) { return pin.second > 0 && now >= pin.second; });
    const bool due = node.release_at > 0 && now >= node.release_at;
    if (due && !node.pinned() && node.n_children == 0) ReleasePool(state, *it);
  }
}

}  // namespace polykv
