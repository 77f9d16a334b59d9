// The cells of FakeBackend: which sequence holds which token where, and what its window still
// reaches.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/model_backend.h"
#include "kv/step_batch.h"

namespace polykv {

struct FakeCell {
  Pos pos = 0;
  Token token = 0;
  uint64_t adapters = 0;  // a mix of those it was computed with; 0: none
  bool in_window = true;  // the layers with a window have it too
};

// Unified: all sequences share one buffer. Split: each has its own n_cells / n_seq of them. With a
// window, computing takes from a sequence what no token after it would see, unless others hold it
// too: libllama does the same as late as it can, this as early as it may.
class FakeCells {
 public:
  static constexpr size_t kMaxSeq = 256;

  FakeCells(int32_t n_cells, int32_t n_seq, int32_t n_swa, bool unified);

  bool HasRoomFor(const StepBatch& batch) const;
  bool HasRoomFor(SeqId seq, size_t n_cells) const;
  void Put(SeqId seq, const FakeCell& cell);  // REQUIRES: room, no cell of `seq` at its position
  void Share(SeqId src, SeqId dst, Pos p0, Pos p1);
  void Remove(SeqId seq, Pos p0, Pos p1);
  void Shift(SeqId seq, Pos p0, Pos p1, Pos delta);
  // What computing a micro-batch costs the windows of those whose buffers it goes to.
  void MoveWindows(std::span<const BatchToken> batch);

  std::vector<FakeCell> CellsOf(SeqId seq) const;  // in no order
  std::vector<Pos> Positions(SeqId seq) const;     // ascending
  Pos MinPos(SeqId seq) const;                     // in the window, if there is one; -1: none
  // The window has the cells at these positions, and no others.
  void SetWindow(SeqId seq, std::span<const Pos> positions);

  // What a token after those of `seq` depends on, without its window.
  uint64_t Content(SeqId seq) const { return content_[static_cast<size_t>(seq)]; }
  // The same, and something else for each cell that the window of the last one lacks.
  uint64_t SeenContent(SeqId seq) const;
  static uint64_t ContentOf(Pos pos, Token token, uint64_t adapters);
  static uint64_t Mix(uint64_t x);

  int32_t n_used() const { return n_used_; }
  int32_t n_in_window() const;
  int32_t Highest() const;  // the highest used index in its buffer + 1; 0: none is used

 private:
  struct Slot {
    FakeCell cell;
    std::bitset<kMaxSeq> seqs;     // none: free
    std::bitset<kMaxSeq> windows;  // of them, those whose window has it
  };

  bool Holds(const Slot& slot, SeqId seq, Pos p0, Pos p1) const;
  size_t BufferOf(SeqId seq) const;  // its first slot
  size_t BufferNumber(SeqId seq) const { return BufferOf(seq) / buffer_size_; }
  static SeqId OnlySequence(const Slot& slot);  // whose window has it
  void FindNext(SeqId seq);
  std::span<const Slot> Buffer(SeqId seq) const;  // up to its last used slot

  const int32_t n_swa_;
  const bool unified_;
  const size_t buffer_size_;
  std::vector<Slot> slots_;
  std::vector<size_t> first_free_;  // per buffer: no slot before it is free …
  std::vector<size_t> used_end_;    // … and none from this one on is used; the one before it is
  std::vector<size_t> n_used_in_;   // per buffer
  std::vector<uint64_t> content_;   // per sequence: sum of a mix of its cells
  std::vector<Pos> next_;           // per sequence: behind its highest position; 0: it has none
  int32_t n_used_ = 0;
};

}  // namespace polykv
