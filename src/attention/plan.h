// Which tiles a block of query tokens computes, and how: whole, by lists of cells, or not at all.
#pragma once

#include "attention/geometry.h"

namespace polykv::POLYKV_ISA {

// The query tokens that are computed together, and what of the cells concerns them.
struct Block {
  int64_t index = -1;
  int64_t first_token = 0;
  int64_t n_tokens = 0;
  int64_t n_active = 0;  // tiles
  int64_t cost = 0;      // of all of them

  int64_t n_rows(const Geometry& g) const { return n_tokens * g.group; }
};

// A lane vector is computed with the whole tile if so much of (its rows x the tile) is open.
inline constexpr double kDenseShare = 0.35;
inline constexpr int64_t kListCost = 3;     // of a cell in a list, against one in a tile
inline constexpr int64_t kTileCost = 1024;  // of a tile, whatever is in it

// The lane vectors in which a token's rows lie.
inline uint64_t VectorsOf(int64_t token, const Geometry& g) {
  const int64_t first = token * g.group / kLanes;
  const int64_t last = ((token + 1) * g.group - 1) / kLanes;
  return (~uint64_t{0} >> (63 - (last - first))) << first;
}

// The lane vectors for which the whole tile is worth its while.
inline uint64_t WorthwhileVectors(const uint64_t* open, const Block& block, const Geometry& g) {
  int64_t open_cells[64] = {};
  for (int64_t token = 0; token < block.n_tokens; ++token) {
    const int64_t cells = CountBits(open[token]);
    for (int64_t row = token * g.group; row < (token + 1) * g.group;) {
      const int64_t vector = row / kLanes;
      const int64_t end = Least((token + 1) * g.group, (vector + 1) * kLanes);
      open_cells[vector] += cells * (end - row);
      row = end;
    }
  }
  uint64_t vectors = 0;
  for (int64_t v = 0; v < g.row_vectors; ++v) {
    const bool worthwhile = static_cast<double>(open_cells[v]) > kDenseShare * kLanes * kTile;
    vectors |= static_cast<uint64_t>(worthwhile) << v;
  }
  return vectors;
}

// `open` is the tile's words of the block's tokens.
inline TileWay PlanTile(const uint64_t* open, const Block& block, const Geometry& g, bool biased) {
  TileWay way;
  way.full = !biased;
  for (int64_t token = 0; token < block.n_tokens; ++token) {
    way.open_tokens |= static_cast<uint64_t>(open[token] != 0) << token;
    way.full = way.full && open[token] == ~uint64_t{0};
  }
  if (way.open_tokens == 0 || block.n_rows(g) * 3 < kLanes) return way;
  const uint64_t worthwhile = WorthwhileVectors(open, block, g);
  for (int64_t token = 0; token < block.n_tokens; ++token) {
    const uint64_t vectors = VectorsOf(token, g);
    if (open[token] == 0 || (!way.full && (vectors & worthwhile) == 0)) continue;
    way.dense_tokens |= uint64_t{1} << token;
    way.vectors |= vectors;
  }
  return way;
}

inline int64_t CostOf(const TileWay& way, const uint64_t* open, const Block& block,
                      const Geometry& g) {
  int64_t listed = 0;
  for (int64_t token = 0; token < block.n_tokens; ++token) {
    const bool dense = (way.dense_tokens >> token & 1) != 0;
    if (!dense) listed += CountBits(open[token]);
  }
  return kTileCost + CountBits(way.vectors) * kLanes * kTile + listed * g.group * kListCost;
}

inline bool IsBiased(const Shared& shared, int n_threads) {
  for (int thread = 0; thread < n_threads; ++thread) {
    if (shared.biased[thread]) return true;
  }
  return false;
}

// Fills the scratch memory's ways and active tiles.
inline Block PlanBlock(const AttentionCall& call, const Geometry& g, const Shared& shared,
                       bool biased, int64_t index, Scratch* scratch) {
  Block block;
  block.index = index;
  block.first_token = index * g.block_tokens;
  block.n_tokens = Least(g.block_tokens, call.n_tokens - block.first_token);
  for (int64_t tile = 0; tile < g.n_tiles; ++tile) {
    const uint64_t* const open = shared.open + tile * call.n_tokens + block.first_token;
    TileWay& way = scratch->ways[tile];
    way = PlanTile(open, block, g, biased);
    if (way.open_tokens == 0) continue;
    way.cost_before = block.cost;
    block.cost += CostOf(way, open, block, g);
    scratch->active[block.n_active++] = static_cast<int32_t>(tile);
  }
  return block;
}

// The active tiles [first, last) that chunk `chunk` of the block's cells consists of: equal costs.
struct TileRange {
  int64_t first = 0;
  int64_t last = 0;
};
inline TileRange ChunkOf(const Block& block, const Geometry& g, const Scratch& scratch,
                         int64_t chunk) {
  const auto first_from = [&](int64_t wanted) {
    int64_t i = 0;
    while (i < block.n_active &&
           scratch.ways[scratch.active[i]].cost_before * g.n_chunks < wanted * block.cost) {
      ++i;
    }
    return i;
  };
  return {first_from(chunk), chunk + 1 == g.n_chunks ? block.n_active : first_from(chunk + 1)};
}

}  // namespace polykv::POLYKV_ISA
