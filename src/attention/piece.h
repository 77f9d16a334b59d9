// One piece of a call: a block's rows of some key heads over a chunk of the cells.
#pragma once

#include <utility>

#include "attention/dense_tile.h"
#include "attention/listed_cells.h"

namespace polykv::POLYKV_ISA {

class PieceWorker {
 public:
  PieceWorker(const AttentionCall& call, const Geometry& g, const Shared& shared, bool biased,
              const Scratch& scratch)
      : call_(call), g_(g), shared_(shared), biased_(biased), scratch_(scratch) {}

  // Fills the partials of the piece.
  void Compute(int64_t piece) {
    Turn(piece);
    const int64_t chunk = piece % g_.n_chunks;
    for (int64_t h = 0; h < n_heads_; ++h) {
      partials_[h] = PartialOf(call_, g_, shared_, block_.index, first_head_ + h, chunk);
      for (int64_t row = 0; row < g_.rows(); ++row) {
        partials_[h].maxima[row] = kNoScore;
        partials_[h].sums[row] = 0;
      }
    }
    const TileRange range = ChunkOf(block_, g_, scratch_, chunk);
    if (range.first == range.last) return;
    for (int64_t h = 0; h < n_heads_; ++h) {
      std::memset(partials_[h].out, 0,
                  static_cast<size_t>(g_.rows() * call_.value_size) * sizeof(float));
    }
    ComputeTiles(range);
    for (int64_t token = 0; token < block_.n_tokens; ++token) ListToken(token, range);
    ComputePending();
  }

  const Block& block() const { return block_; }
  int64_t first_head() const { return first_head_; }
  int64_t n_heads() const { return n_heads_; }

 private:
  // Makes the piece's block and heads the current ones.
  void Turn(int64_t piece) {
    // The last blocks first: under a causal mask they are the longest.
    const int64_t block = g_.n_blocks - 1 - piece / (g_.n_chunks * g_.n_head_groups);
    const int64_t first_head = piece / g_.n_chunks % g_.n_head_groups * g_.heads_per_piece;
    if (block == block_.index && first_head == first_head_) return;
    if (block != block_.index) {
      block_ = PlanBlock(call_, g_, shared_, biased_, block, &scratch_);
    }
    first_head_ = first_head;
    n_heads_ = Least(g_.heads_per_piece, call_.n_kv_heads - first_head);
    queries_ready_ = false;
  }

  float* Queries(int64_t h) const { return scratch_.queries + h * call_.key_size * g_.rows(); }

  void PrepareQueries() {
    if (queries_ready_) return;
    for (int64_t h = 0; h < n_heads_; ++h) {
      TransposeQueries(call_, g_, block_.first_token, block_.n_tokens, first_head_ + h,
                       call_.scale * kLog2E, Queries(h));
    }
    queries_ready_ = true;
  }

  const uint64_t* OpenCells(int64_t tile) const {
    return shared_.open + tile * call_.n_tokens + block_.first_token;
  }

  void ComputeTiles(const TileRange& range) {
    for (int64_t i = range.first; i < range.last; ++i) {
      const int64_t tile = scratch_.active[i];
      const TileWay& way = scratch_.ways[tile];
      if (way.vectors == 0) continue;
      PrepareQueries();
      if (!way.full) {
        SpreadMask(call_, g_, block_, way, tile, biased_, OpenCells(tile), scratch_.mask);
      }
      const int64_t next = i + 1 < range.last ? scratch_.active[i + 1] : g_.n_tiles;
      for (int64_t h = 0; h < n_heads_; ++h) ComputeTile(tile, way, next, h);
    }
  }

  void ComputeTile(int64_t tile, const TileWay& way, int64_t next, int64_t h) {
    const int64_t head = first_head_ + h;
    WidenTile(call_.keys, head, tile, call_.n_cells, call_.key_size, scratch_.keys);
    WidenTile(call_.values, head, tile, call_.n_cells, call_.value_size, scratch_.values);
    // What is no number in a cell must not reach those who do not see it: 0 * NaN is NaN.
    if (!way.full &&
        !(IsFinite(scratch_.keys, call_.key_size) && IsFinite(scratch_.values, call_.value_size))) {
      ListTile(tile, way, h);
      return;
    }
    const int64_t first = Least(next * kTile, call_.n_cells);
    const int64_t last = Least(first + kTile, call_.n_cells);
    DenseTile dense{.queries = Queries(h),
                    .mask = way.full ? nullptr : scratch_.mask,
                    .next_keys = TileFetch(call_.keys, head, first, last),
                    .next_values = TileFetch(call_.values, head, first, last)};
    ComputeVectors(call_, g_, block_.n_rows(g_), way.vectors, scratch_, partials_[h], &dense);
  }

  // The tile's dense tokens by lists after all, for one head.
  void ListTile(int64_t tile, const TileWay& way, int64_t h) {
    for (uint64_t tokens = way.dense_tokens; tokens != 0; tokens &= tokens - 1) {
      CellList list{.token = FirstBit(tokens)};
      for (uint64_t open = OpenCells(tile)[list.token]; open != 0; open &= open - 1) {
        list.cells[list.n++] = static_cast<int32_t>(tile * kTile + FirstBit(open));
      }
      Compute(list, h);
    }
  }

  void Compute(const CellList& list, int64_t h) {
    const int64_t token = block_.first_token + list.token;
    const auto* const mask = reinterpret_cast<const uint16_t*>(
        call_.mask + static_cast<size_t>(token) * call_.mask_stride);
    ComputeList(call_, list, token, biased_ ? mask : nullptr, first_head_ + h, scratch_,
                partials_[h]);
  }

  // What the token sees in tiles that are not computed as a whole for it.
  void ListToken(int64_t token, const TileRange& range) {
    list_.token = token;
    for (int64_t i = range.first; i < range.last; ++i) {
      const int64_t tile = scratch_.active[i];
      if ((scratch_.ways[tile].dense_tokens >> token & 1) != 0) continue;
      for (uint64_t open = OpenCells(tile)[token]; open != 0; open &= open - 1) {
        list_.cells[list_.n++] = static_cast<int32_t>(tile * kTile + FirstBit(open));
        if (list_.n == kTile) EndList();
      }
    }
    if (list_.n > 0) EndList();
  }

  // A list is computed when the next one has been asked for.
  void EndList() {
    const int64_t last_head = first_head_ + n_heads_;
    FetchList(call_.keys, list_, first_head_, last_head);
    FetchList(call_.values, list_, first_head_, last_head);
    ComputePending();
    std::swap(list_, pending_);
    list_.token = pending_.token;
  }

  void ComputePending() {
    if (pending_.n == 0) return;
    for (int64_t h = 0; h < n_heads_; ++h) Compute(pending_, h);
    pending_.n = 0;
  }

  const AttentionCall& call_;
  const Geometry& g_;
  const Shared& shared_;
  const bool biased_;
  Scratch scratch_;
  Block block_;
  int64_t first_head_ = 0;
  int64_t n_heads_ = 0;
  bool queries_ready_ = false;
  Partial partials_[kMaxPieceHeads];
  CellList list_;
  CellList pending_;
};

}  // namespace polykv::POLYKV_ISA
