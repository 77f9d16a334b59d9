#include "kv/fake_cells.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace polykv {

uint64_t FakeCells::Mix(uint64_t x) {  // splitmix64's finalizer
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t FakeCells::ContentOf(Pos pos, Token token, uint64_t adapters) {
  return Mix((static_cast<uint64_t>(pos) << 32) ^ static_cast<uint32_t>(token) ^ adapters);
}

FakeCells::FakeCells(int32_t n_cells, int32_t n_seq, int32_t n_swa, bool unified)
    : n_swa_(n_swa),
      unified_(unified),
      buffer_size_(static_cast<size_t>(unified ? n_cells : n_cells / n_seq)),
      slots_(unified ? buffer_size_ : buffer_size_ * static_cast<size_t>(n_seq)),
      first_free_(slots_.size() / buffer_size_),
      used_end_(first_free_.size()),
      n_used_in_(first_free_.size()),
      content_(static_cast<size_t>(n_seq)),
      next_(static_cast<size_t>(n_seq)) {
  POLYKV_CHECK(n_seq <= static_cast<int32_t>(kMaxSeq));
}

size_t FakeCells::BufferOf(SeqId seq) const {
  return unified_ ? 0 : static_cast<size_t>(seq) * buffer_size_;
}

std::span<const FakeCells::Slot> FakeCells::Buffer(SeqId seq) const {
  return std::span(slots_).subspan(BufferOf(seq), used_end_[BufferNumber(seq)]);
}

bool FakeCells::Holds(const Slot& slot, SeqId seq, Pos p0, Pos p1) const {
  return slot.seqs.test(static_cast<size_t>(seq)) && slot.cell.pos >= p0 &&
         (p1 == kToEnd || slot.cell.pos < p1);
}

bool FakeCells::HasRoomFor(SeqId seq, size_t n_cells) const {
  return buffer_size_ - n_used_in_[BufferNumber(seq)] >= n_cells;
}

bool FakeCells::HasRoomFor(const StepBatch& batch) const {
  std::map<size_t, std::pair<SeqId, size_t>> wanted;  // by buffer
  for (const BatchToken& entry : batch) {
    auto& [seq, n_cells] = wanted[BufferOf(entry.seq)];
    seq = entry.seq;
    ++n_cells;
  }
  return std::all_of(wanted.begin(), wanted.end(), [this](const auto& buffer) {
    return HasRoomFor(buffer.second.first, buffer.second.second);
  });
}

void FakeCells::Put(SeqId seq, const FakeCell& cell) {
  const size_t end = BufferOf(seq) + buffer_size_;
  size_t& hint = first_free_[BufferNumber(seq)];
  size_t free = BufferOf(seq) + hint;
  while (free < end && slots_[free].seqs.any()) ++free;
  POLYKV_CHECK(free < end);
  hint = free + 1 - BufferOf(seq);
  used_end_[BufferNumber(seq)] = std::max(used_end_[BufferNumber(seq)], hint);
  ++n_used_in_[BufferNumber(seq)];
  slots_[free] = {.cell = cell, .seqs = {}, .windows = {}};
  slots_[free].seqs.set(static_cast<size_t>(seq));
  slots_[free].windows.set(static_cast<size_t>(seq), cell.in_window);
  ++n_used_;
  content_[static_cast<size_t>(seq)] += ContentOf(cell.pos, cell.token, cell.adapters);
  next_[static_cast<size_t>(seq)] = std::max(next_[static_cast<size_t>(seq)], cell.pos + 1);
}

void FakeCells::Share(SeqId src, SeqId dst, Pos p0, Pos p1) {
  if (!unified_) {
    for (const FakeCell& cell : CellsOf(src)) {
      if (cell.pos >= p0 && (p1 == kToEnd || cell.pos < p1)) Put(dst, cell);
    }
    return;
  }
  for (size_t i = 0; i < used_end_[0]; ++i) {
    Slot& slot = slots_[i];
    if (!Holds(slot, src, p0, p1)) continue;
    POLYKV_CHECK(!slot.seqs.test(static_cast<size_t>(dst)));
    slot.seqs.set(static_cast<size_t>(dst));
    slot.windows.set(static_cast<size_t>(dst), slot.windows.test(static_cast<size_t>(src)));
    content_[static_cast<size_t>(dst)] +=
        ContentOf(slot.cell.pos, slot.cell.token, slot.cell.adapters);
  }
  FindNext(dst);
}

void FakeCells::Remove(SeqId seq, Pos p0, Pos p1) {
  size_t& hint = first_free_[BufferNumber(seq)];
  size_t& used_end = used_end_[BufferNumber(seq)];
  for (size_t i = 0; i < used_end; ++i) {
    Slot& slot = slots_[BufferOf(seq) + i];
    if (!Holds(slot, seq, p0, p1)) continue;
    slot.seqs.reset(static_cast<size_t>(seq));
    slot.windows.reset(static_cast<size_t>(seq));
    if (slot.seqs.none()) {
      --n_used_;
      --n_used_in_[BufferNumber(seq)];
      hint = std::min(hint, i);
    }
    content_[static_cast<size_t>(seq)] -=
        ContentOf(slot.cell.pos, slot.cell.token, slot.cell.adapters);
  }
  while (used_end > 0 && slots_[BufferOf(seq) + used_end - 1].seqs.none()) --used_end;
  FindNext(seq);
}

void FakeCells::Shift(SeqId seq, Pos p0, Pos p1, Pos delta) {
  uint64_t& content = content_[static_cast<size_t>(seq)];
  for (Slot& slot : slots_) {
    if (!Holds(slot, seq, p0, p1)) continue;
    FakeCell& cell = slot.cell;
    POLYKV_CHECK(slot.seqs.count() == 1 && cell.pos + delta >= 0);
    content -= ContentOf(cell.pos, cell.token, cell.adapters);
    cell.pos += delta;
    content += ContentOf(cell.pos, cell.token, cell.adapters);
  }
  FindNext(seq);
}

// A sequence that loses a cell loses all before it, also those that others keep: what its window
// has is without holes.
void FakeCells::MoveWindows(std::span<const BatchToken> batch) {
  if (n_swa_ == 0) return;
  std::vector<bool> computes(slots_.size() / buffer_size_);
  for (const BatchToken& entry : batch) computes[BufferOf(entry.seq) / buffer_size_] = true;
  std::vector<Pos> lost_up_to(content_.size(), -1);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (!computes[i / buffer_size_] || slot.windows.count() != 1) continue;
    const auto seq = static_cast<size_t>(OnlySequence(slot));
    if (next_[seq] - slot.cell.pos < n_swa_) continue;
    lost_up_to[seq] = std::max(lost_up_to[seq], slot.cell.pos);
  }
  for (size_t seq = 0; seq < content_.size(); ++seq) {
    if (lost_up_to[seq] < 0) continue;
    for (Slot& slot : slots_) {
      if (slot.cell.pos <= lost_up_to[seq]) slot.windows.reset(seq);
    }
  }
}

SeqId FakeCells::OnlySequence(const Slot& slot) {
  SeqId seq = 0;
  while (!slot.windows.test(static_cast<size_t>(seq))) ++seq;
  return seq;
}

std::vector<FakeCell> FakeCells::CellsOf(SeqId seq) const {
  std::vector<FakeCell> cells;
  for (const Slot& slot : Buffer(seq)) {
    if (!slot.seqs.test(static_cast<size_t>(seq))) continue;
    cells.push_back(slot.cell);
    cells.back().in_window = slot.windows.test(static_cast<size_t>(seq));
  }
  return cells;
}

std::vector<Pos> FakeCells::Positions(SeqId seq) const {
  std::vector<Pos> positions;
  for (const FakeCell& cell : CellsOf(seq)) positions.push_back(cell.pos);
  std::sort(positions.begin(), positions.end());
  return positions;
}

void FakeCells::FindNext(SeqId seq) {
  Pos& next = next_[static_cast<size_t>(seq)];
  next = 0;
  for (const Slot& slot : Buffer(seq)) {
    if (slot.seqs.test(static_cast<size_t>(seq))) next = std::max(next, slot.cell.pos + 1);
  }
}

Pos FakeCells::MinPos(SeqId seq) const {
  Pos min = -1;
  for (const Slot& slot : Buffer(seq)) {
    if (!slot.windows.test(static_cast<size_t>(seq))) continue;
    min = min < 0 ? slot.cell.pos : std::min(min, slot.cell.pos);
  }
  return min;
}

void FakeCells::SetWindow(SeqId seq, std::span<const Pos> positions) {
  for (Slot& slot : slots_) {
    if (!slot.seqs.test(static_cast<size_t>(seq))) continue;
    const bool has =
        std::find(positions.begin(), positions.end(), slot.cell.pos) != positions.end();
    slot.windows.set(static_cast<size_t>(seq), has);
  }
}

uint64_t FakeCells::SeenContent(SeqId seq) const {
  uint64_t content = Content(seq);
  if (n_swa_ == 0) return content;
  const Pos last = next_[static_cast<size_t>(seq)] - 1;
  for (const Slot& slot : Buffer(seq)) {
    if (!Holds(slot, seq, last - n_swa_ + 1, kToEnd)) continue;
    if (slot.windows.test(static_cast<size_t>(seq))) continue;
    content += Mix(~ContentOf(slot.cell.pos, slot.cell.token, slot.cell.adapters));
  }
  return content;
}

int32_t FakeCells::n_in_window() const {
  return static_cast<int32_t>(std::count_if(slots_.begin(), slots_.end(),
                                            [](const Slot& slot) { return slot.windows.any(); }));
}

int32_t FakeCells::Highest() const {
  return static_cast<int32_t>(*std::max_element(used_end_.begin(), used_end_.end()));
}

}  // namespace polykv
