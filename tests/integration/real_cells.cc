#include "integration/real_cells.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "llama-kv-cache-iswa.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"

namespace polykv {
namespace {

struct CacheCells {
  int32_t used = 0;
  int32_t ownerless = 0;
  PositionsBySequence positions;
};

CacheCells ReadCache(const llama_kv_cache& cache) {
  CacheCells read;
  for (uint32_t stream = 0; stream < cache.get_n_stream(); ++stream) {
    const llama_kv_cells& cells = cache.get_cells(static_cast<SeqId>(stream));
    for (uint32_t i = 0; i < cells.size(); ++i) {
      if (cells.is_empty(i)) continue;
      ++read.used;
      const llama_kv_cells::seq_set_t& sequences = cells.seq_get_all(i);
      if (sequences.none()) ++read.ownerless;
      for (size_t seq = 0; seq < sequences.size(); ++seq) {
        if (!sequences.test(seq)) continue;
        read.positions[static_cast<SeqId>(seq)].push_back(cells.pos_get(i));
      }
    }
  }
  for (auto& [seq, positions] : read.positions) std::sort(positions.begin(), positions.end());
  return read;
}

void AddAttention(const llama_kv_cache& cache, RealCells* real) {
  CacheCells read = ReadCache(cache);
  real->used = read.used;
  real->ownerless += read.ownerless;
  real->positions = std::move(read.positions);
}

void AddWindow(const llama_kv_cache& cache, RealCells* real) {
  CacheCells read = ReadCache(cache);
  real->ownerless += read.ownerless;
  real->window = std::move(read.positions);
}

void AddStates(const llama_memory_recurrent& memory, RealCells* real) {
  for (const auto& cell : memory.cells) {
    if (cell.is_empty()) continue;
    ++real->n_states;
    for (const SeqId seq : cell.seq_id) real->tips[seq] = cell.pos;
  }
}

}  // namespace

RealCells ReadRealCells(const LlamaBackend& backend) {
  const llama_memory_i* memory = llama_get_memory(backend.context());
  RealCells real;
  if (const auto* hybrid = dynamic_cast<const llama_memory_hybrid*>(memory)) {
    AddStates(*hybrid->get_mem_recr(), &real);
    memory = hybrid->get_mem_attn();
  } else if (const auto* windowed = dynamic_cast<const llama_memory_hybrid_iswa*>(memory)) {
    AddStates(*windowed->get_mem_recr(), &real);
    memory = windowed->get_mem_attn();
  }
  if (const auto* windowed = dynamic_cast<const llama_kv_cache_iswa*>(memory)) {
    AddWindow(*windowed->get_swa(), &real);
    memory = windowed->get_base();
  }
  if (const auto* states = dynamic_cast<const llama_memory_recurrent*>(memory)) {
    AddStates(*states, &real);
  } else {
    const auto* cache = dynamic_cast<const llama_kv_cache*>(memory);
    POLYKV_CHECK(cache != nullptr);
    AddAttention(*cache, &real);
  }
  return real;
}

std::vector<Pos> PositionsUpTo(Pos n) {
  std::vector<Pos> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

}  // namespace polykv
