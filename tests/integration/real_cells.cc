#include "integration/real_cells.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "llama-kv-cache.h"

namespace polykv {

RealCells ReadRealCells(const LlamaBackend& backend) {
  const auto* cache = dynamic_cast<const llama_kv_cache*>(llama_get_memory(backend.context()));
  POLYKV_CHECK(cache != nullptr && cache->get_n_stream() == 1);
  const llama_kv_cells& cells = cache->get_cells(0);
  RealCells real;
  for (uint32_t i = 0; i < cells.size(); ++i) {
    if (cells.is_empty(i)) continue;
    ++real.used;
    const llama_kv_cells::seq_set_t& sequences = cells.seq_get_all(i);
    if (sequences.none()) ++real.ownerless;
    for (SeqId seq = 0; seq < static_cast<SeqId>(sequences.size()); ++seq) {
      if (sequences.test(static_cast<size_t>(seq))) real.positions[seq].push_back(cells.pos_get(i));
    }
  }
  POLYKV_CHECK(real.used == static_cast<int32_t>(cells.get_used()));
  for (auto& [seq, positions] : real.positions) std::sort(positions.begin(), positions.end());
  return real;
}

std::vector<Pos> PositionsUpTo(Pos n) {
  std::vector<Pos> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

}  // namespace polykv
