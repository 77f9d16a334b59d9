// A call from its beginning to its end, as one of its threads sees it.
#pragma once

#include "attention/kernels.h"
#include "attention/merge.h"
#include "attention/piece.h"

namespace polykv::POLYKV_ISA {

// A thread's share of the mask. The words of all tokens are ready when all threads are through.
inline void ScanShare(const AttentionCall& call, const Geometry& g, const Team& team,
                      const Shared& shared) {
  const int64_t n_words = call.n_tokens * g.n_tiles;
  bool biased = false;
  for (int64_t i = n_words * team.index / team.size; i < n_words * (team.index + 1) / team.size;
       ++i) {
    const int64_t token = i / g.n_tiles;
    const int64_t tile = i % g.n_tiles;
    const auto* mask = reinterpret_cast<const uint16_t*>(call.mask + static_cast<size_t>(token) *
                                                                         call.mask_stride) +
                       tile * kTile;
    uint16_t padded[kTile];
    if (const int64_t n = call.n_cells - tile * kTile; n < kTile) {
      for (int64_t cell = 0; cell < kTile; ++cell) {
        padded[cell] = cell < n ? mask[cell] : kMaskedHalf;
      }
      mask = padded;
    }
    const MaskWord word = ScanMask(mask);
    shared.open[tile * call.n_tokens + token] = word.open;
    biased = biased || word.biased;
  }
  shared.biased[team.index] = biased;
}

inline void MergeHeads(const AttentionCall& call, const Geometry& g, const Shared& shared,
                       int64_t block, int64_t first_head, int64_t n_heads) {
  for (int64_t head = first_head; head < first_head + n_heads; ++head) {
    for (int64_t vector = 0; vector < g.row_vectors; ++vector) {
      MergeLanes(call, g, shared, block, head, vector);
    }
  }
}

inline std::byte* Aligned(std::byte* work) {
  const auto address = reinterpret_cast<uintptr_t>(work);
  return work + (Carver::kLine - address % Carver::kLine) % Carver::kLine;
}

inline size_t WorkBytes(const AttentionCall& call, int n_threads) {
  const Geometry g = MakeGeometry(call);
  return Memory(call, g, 0, n_threads, nullptr).carver.used() + Carver::kLine;
}

inline void Compute(const AttentionCall& call, const Team& team, std::byte* work) {
  const Geometry g = MakeGeometry(call);
  const Memory memory(call, g, team.index, team.size, Aligned(work));
  const Shared& shared = memory.shared;
  ScanShare(call, g, team, shared);
  if (team.index == 0) {
    shared.next_piece->store(0, std::memory_order_relaxed);
    shared.next_merge->store(0, std::memory_order_relaxed);
  }
  team.Wait();
  // Threads take pieces as they come to it: one that the system has put aside holds up none.
  PieceWorker worker(call, g, shared, IsBiased(shared, team.size), memory.scratch);
  while (true) {
    const int64_t piece = shared.next_piece->fetch_add(1, std::memory_order_relaxed);
    if (piece >= g.n_pieces()) break;
    worker.Compute(piece);
    if (g.n_chunks == 1) {
      MergeHeads(call, g, shared, worker.block().index, worker.first_head(), worker.n_heads());
    }
  }
  if (g.n_chunks == 1) return;
  team.Wait();
  const int64_t n_merges = g.n_blocks * call.n_kv_heads * g.row_vectors;
  while (true) {
    const int64_t i = shared.next_merge->fetch_add(1, std::memory_order_relaxed);
    if (i >= n_merges) return;
    const int64_t block_head = i / g.row_vectors;
    MergeLanes(call, g, shared, block_head / call.n_kv_heads, block_head % call.n_kv_heads,
               i % g.row_vectors);
  }
}

}  // namespace polykv::POLYKV_ISA
