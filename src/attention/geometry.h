// How a call is cut into pieces that threads take one by one, and where everything lies in the
// memory that they share. All of it follows from the shapes of the call (and the number of threads
// only as far as each has its own scratch memory).
#pragma once

#include <atomic>

#include "attention/call.h"
#include "attention/limits.h"
#include "attention/products.h"
#include "attention/vectors.h"

namespace polykv::POLYKV_ISA {

// A piece is a block of query tokens x some key heads x a chunk of the cells. The rows of a block
// are its query vectors of one key head: row = token * group + head within the group.
struct Geometry {
  int64_t group = 1;
  int64_t n_tiles = 1;
  int64_t block_tokens = 1;  // at most
  int64_t n_blocks = 1;
  int64_t row_vectors = 1;      // lane vectors that hold a block's rows; at most 64
  int64_t heads_per_piece = 1;  // key heads
  int64_t n_head_groups = 1;
  int64_t n_chunks = 1;  // per block

  int64_t rows() const { return row_vectors * kLanes; }  // the last ones may be of no token
  int64_t n_pieces() const { return n_blocks * n_head_groups * n_chunks; }
};

inline constexpr int64_t kPieces = 32;         // enough to keep some threads equally busy
inline constexpr size_t kPieceRowBytes = 512;  // of a cell's keys, which lie together
inline constexpr int64_t kMaxPieceHeads = 16;

inline Geometry MakeGeometry(const AttentionCall& call) {
  const auto ceil_divide = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  Geometry g;
  g.group = call.group();
  g.n_tiles = ceil_divide(call.n_cells, kTile);
  const int64_t most_tokens = Least<int64_t>(kMaxBlockTokens, 64 * kLanes / g.group);
  g.n_blocks = ceil_divide(call.n_tokens, most_tokens);
  g.block_tokens = ceil_divide(call.n_tokens, g.n_blocks);
  g.n_blocks = ceil_divide(call.n_tokens, g.block_tokens);
  g.row_vectors = ceil_divide(g.block_tokens * g.group, kLanes);
  g.heads_per_piece = Greatest<int64_t>(
      1, static_cast<int64_t>(kPieceRowBytes / Greatest<size_t>(call.keys.head_stride, 1)));
  g.heads_per_piece = Least(g.heads_per_piece, Least(call.n_kv_heads, kMaxPieceHeads));
  g.n_head_groups = ceil_divide(call.n_kv_heads, g.heads_per_piece);
  g.n_chunks = kPieces / (g.n_blocks * g.n_head_groups);
  g.n_chunks = Greatest<int64_t>(1, Least(g.n_chunks, g.n_tiles / 2));
  return g;
}

// The softmax of a piece's cells so far, for one key head: with m the greatest score of a row
// (times log2 e), `sums` holds the sum of 2^(score - m) and `out` that sum weighted by the values.
struct Partial {
  float* maxima = nullptr;  // [rows]
  float* sums = nullptr;    // [rows]; 0: no cell of this piece is open for the row
  float* out = nullptr;     // [rows][value_size]

  static size_t Bytes(const AttentionCall& call, const Geometry& g) {
    return static_cast<size_t>(g.rows() * (2 + call.value_size)) * sizeof(float);
  }
};

// What happens to a tile in a block.
struct TileWay {
  uint64_t open_tokens = 0;   // tokens of the block that see any of its cells
  uint64_t dense_tokens = 0;  // of them those whose rows are computed with the whole tile
  uint64_t vectors = 0;       // lane vectors in which these rows lie
  bool full = false;          // every token sees every cell, without a bias: no mask is needed
  int64_t cost_before = 0;    // of the active tiles before this one, in cells x rows or so
};

// What one thread needs for itself.
struct Scratch {
  TileWay* ways = nullptr;     // [n_tiles] of the block planned last
  int32_t* active = nullptr;   // the tiles that somebody sees
  float* queries = nullptr;    // [heads_per_piece][key_size][rows]: scaled, transposed
  float* keys = nullptr;       // [kTile][kRowStride]
  float* values = nullptr;     // [kTile][kRowStride]
  float* scores = nullptr;     // [kTile][rows of a run], or [4][kTile]
  float* mask = nullptr;       // [kTile][rows]
  float* one_token = nullptr;  // [group][key_size]: scaled queries of one token
};

// Hands out parts of one memory, each on a cache line of its own; without memory it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(int64_t n) {
    T* const part = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += (static_cast<size_t>(n) * sizeof(T) + kLine - 1) / kLine * kLine;
    return part;
  }
  size_t used() const { return used_; }

  static constexpr size_t kLine = 64;

 private:
  std::byte* memory_;
  size_t used_ = 0;
};

// What the threads of a call share.
struct Shared {
  std::atomic<int64_t>* next_piece = nullptr;
  std::atomic<int64_t>* next_merge = nullptr;
  bool* biased = nullptr;         // [n_threads]: that thread has seen a mask other than 0 and -inf
  uint64_t* open = nullptr;       // [n_tiles][n_tokens], see MaskWord
  std::byte* partials = nullptr;  // [n_blocks][n_kv_heads][n_chunks]
};

// The memory of a call, laid out for thread `index` of `n_threads`.
struct Memory {
  Memory(const AttentionCall& call, const Geometry& g, int index, int n_threads, std::byte* work)
      : carver(work) {
    shared.next_piece = carver.Take<std::atomic<int64_t>>(1);
    shared.next_merge = carver.Take<std::atomic<int64_t>>(1);
    shared.biased = carver.Take<bool>(n_threads);
    shared.open = carver.Take<uint64_t>(g.n_tiles * call.n_tokens);
    shared.partials = carver.Take<std::byte>(g.n_blocks * call.n_kv_heads * g.n_chunks *
                                             static_cast<int64_t>(Partial::Bytes(call, g)));
    for (int thread = 0; thread < n_threads; ++thread) {
      const Scratch own = CarveScratch(call, g, &carver);
      if (thread == index) scratch = own;
    }
  }

  Carver carver;
  Shared shared;
  Scratch scratch;

 private:
  static Scratch CarveScratch(const AttentionCall& call, const Geometry& g, Carver* carver) {
    Scratch scratch;
    scratch.ways = carver->Take<TileWay>(g.n_tiles);
    scratch.active = carver->Take<int32_t>(g.n_tiles);
    scratch.queries = carver->Take<float>(g.heads_per_piece * call.key_size * g.rows());
    scratch.keys = carver->Take<float>(kTile * kRowStride);
    scratch.values = carver->Take<float>(kTile * kRowStride);
    scratch.scores = carver->Take<float>(kTile * kRunLanes);
    scratch.mask = carver->Take<float>(kTile * g.rows());
    scratch.one_token = carver->Take<float>(g.group * call.key_size);
    return scratch;
  }
};

inline Partial PartialOf(const AttentionCall& call, const Geometry& g, const Shared& shared,
                         int64_t block, int64_t kv_head, int64_t chunk) {
  const int64_t index = (block * call.n_kv_heads + kv_head) * g.n_chunks + chunk;
  std::byte* const memory = shared.partials + static_cast<size_t>(index) * Partial::Bytes(call, g);
  auto* const floats = reinterpret_cast<float*>(memory);
  return {.maxima = floats, .sums = floats + g.rows(), .out = floats + 2 * g.rows()};
}

}  // namespace polykv::POLYKV_ISA
