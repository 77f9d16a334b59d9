#include "llama/memory_internals.h"

#include <algorithm>

#include "llama-context.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"

namespace polykv {
namespace {

struct Parts {
  const llama_kv_cache* attention = nullptr;
  const llama_kv_cache* window = nullptr;
  const llama_memory_recurrent* recurrent = nullptr;
};

// All null of a kind that is not known here.
Parts PartsOf(llama_memory_t memory) {
  if (const auto* cache = dynamic_cast<const llama_kv_cache*>(memory)) return {.attention = cache};
  if (const auto* cache = dynamic_cast<const llama_kv_cache_iswa*>(memory)) {
    return {.attention = cache->get_base(), .window = cache->get_swa()};
  }
  if (const auto* state = dynamic_cast<const llama_memory_recurrent*>(memory)) {
    return {.recurrent = state};
  }
  if (const auto* hybrid = dynamic_cast<const llama_memory_hybrid*>(memory)) {
    return {.attention = hybrid->get_mem_attn(), .recurrent = hybrid->get_mem_recr()};
  }
  if (const auto* hybrid = dynamic_cast<const llama_memory_hybrid_iswa*>(memory)) {
    return {.attention = hybrid->get_mem_attn()->get_base(),
            .window = hybrid->get_mem_attn()->get_swa(),
            .recurrent = hybrid->get_mem_recr()};
  }
  return {};
}

int64_t BytesOf(const llama_memory_i& memory) {
  int64_t bytes = 0;
  for (const auto& [type, size] : memory.memory_breakdown()) bytes += static_cast<int64_t>(size);
  return bytes;
}

MemoryUse UseOf(const char* name, const llama_kv_cache& cache) {
  MemoryUse use{.name = name, .bytes = BytesOf(cache)};
  // One stream for all sequences, or one for each.
  for (uint32_t stream = 0; stream < cache.get_n_stream(); ++stream) {
    const llama_kv_cells& cells = cache.get_cells(static_cast<SeqId>(stream));
    use.used += static_cast<int32_t>(cells.get_used());
    use.total += static_cast<int32_t>(cells.size());
  }
  return use;
}

}  // namespace

int32_t HighestCell(llama_memory_t memory) {
  const Parts parts = PartsOf(memory);
  if (parts.attention == nullptr) return parts.recurrent != nullptr ? 0 : -1;
  uint32_t highest = 0;
  for (uint32_t stream = 0; stream < parts.attention->get_n_stream(); ++stream) {
    highest =
        std::max(highest, parts.attention->get_cells(static_cast<SeqId>(stream)).used_max_p1());
  }
  return static_cast<int32_t>(highest);
}

std::vector<MemoryUse> MemoryUses(llama_memory_t memory) {
  const Parts parts = PartsOf(memory);
  std::vector<MemoryUse> uses;
  if (parts.attention != nullptr) uses.push_back(UseOf("attn", *parts.attention));
  if (parts.window != nullptr) uses.push_back(UseOf("swa", *parts.window));
  if (parts.recurrent != nullptr) {
    uses.push_back({.name = "recurrent",
                    .used = static_cast<int32_t>(parts.recurrent->used),
                    .total = static_cast<int32_t>(parts.recurrent->size),
                    .bytes = BytesOf(*parts.recurrent)});
  }
  return uses;
}

bool SharesTip(llama_memory_t memory, SeqId seq) {
  const llama_memory_recurrent* const states = PartsOf(memory).recurrent;
  if (states == nullptr) return false;
  const int32_t tip = states->cells[static_cast<size_t>(seq)].tail;
  return tip >= 0 && states->cells[static_cast<size_t>(tip)].seq_id.size() > 1;
}

bool HasPendingRollback(llama_memory_t memory, SeqId seq) {
  const llama_memory_recurrent* const states = PartsOf(memory).recurrent;
  return states != nullptr && states->rs_idx[static_cast<size_t>(seq)] != 0;
}

void CompletePendingCopies(llama_context* context) { context->memory_update(/*optimize=*/false); }

}  // namespace polykv
