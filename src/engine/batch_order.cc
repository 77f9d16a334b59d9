#include "engine/batch_order.h"

#include <algorithm>
#include <numeric>

#include "pool/pool_node.h"

namespace polykv {
namespace {

// The pools whose cells the sequence holds, from the one with the first cells on.
std::vector<PoolId> HeldPools(const Sequence& sequence) {
  std::vector<PoolId> pools;
  for (const PoolNode* node = sequence.lease.node(); node != nullptr; node = node->base.node()) {
    pools.push_back(node->id);
  }
  std::reverse(pools.begin(), pools.end());
  return pools;
}

}  // namespace

std::vector<size_t> OrderBySharing(std::span<const Sequence* const> sequences) {
  std::vector<std::vector<PoolId>> pools;
  pools.reserve(sequences.size());
  for (const Sequence* const sequence : sequences) pools.push_back(HeldPools(*sequence));
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return pools[a] < pools[b]; });
  return order;
}

}  // namespace polykv
