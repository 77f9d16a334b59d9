#include "kv/fake_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "base/check.h"

namespace polykv {
namespace {

uint64_t Mix(uint64_t x) {  // splitmix64's finalizer
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t CellContent(Pos pos, Token token, uint64_t adapters) {
  return Mix((static_cast<uint64_t>(pos) << 32) ^ static_cast<uint32_t>(token) ^ adapters);
}

class GreedySampler final : public Sampler {
 public:
  GreedySampler(const FakeBackend* backend, std::vector<Token> reasoning_end)
      : backend_(backend),
        reasoning_end_(std::move(reasoning_end)),
        n_forced_(reasoning_end_.size()) {}
  void AcceptPrompt(std::span<const Token>) override {}
  SampledToken Sample(int32_t output_index) override {
    SampledToken sampled;
    sampled.token = n_forced_ < reasoning_end_.size() ? reasoning_end_[n_forced_++]
                                                      : backend_->Choice(output_index);
    return sampled;
  }
  std::vector<SampledToken> SampleAlong(int32_t output_index,
                                        std::span<const Token> draft) override {
    std::vector<SampledToken> sampled;
    for (size_t i = 0; i < draft.size(); ++i) {
      sampled.push_back(Sample(output_index++));
      const Token token = sampled.back().token;
      const bool ends = backend_->IsEndOfGeneration(token) && i + 1 < draft.size();
      if (token != draft[i] || ends) return sampled;
    }
    sampled.push_back(Sample(output_index));
    return sampled;
  }

  void EndReasoning() override { n_forced_ = 0; }

 private:
  const FakeBackend* backend_;
  const std::vector<Token> reasoning_end_;
  size_t n_forced_;  // of them said; all: none is to be said
};

}  // namespace

FakeBackend::FakeBackend(FakeBackendOptions options)
    : options_(options),
      cells_(static_cast<size_t>(options.n_ctx)),
      content_(static_cast<size_t>(options.n_seq_max)),
      recurrence_(static_cast<size_t>(options.n_seq_max)) {
  POLYKV_CHECK(options.n_seq_max <= static_cast<int32_t>(kMaxSeq));
  info_.n_vocab = 257;
  info_.n_ctx = options.n_ctx;
  info_.n_ctx_seq = options.n_ctx;
  info_.n_ctx_train = options.n_ctx;
  info_.n_seq_max = options.n_seq_max;
  info_.n_batch = options.n_batch;
  info_.n_ubatch = options.n_ubatch;
  info_.bytes_per_cell = 1024;
  info_.n_adapters = options.n_adapters;
  info_.generates = options.generates;
  info_.pooled = options.pooled;
  info_.embeds_in_parts = options.embeds_in_parts;
  if (options.recurrent) {
    info_.removes_ends = false;
    info_.sharing = Sharing::kOff;
    info_.sharing_reason = "recurrent";
  }
  if (options.n_draft > 0) drafter_.emplace(this, options.n_draft, options.wrong_every);
}

void FakeBackend::ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) {
  POLYKV_CHECK(src != dst && dst < info_.n_seq_max && src < info_.n_seq_max);
  for (Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(src)) || cell.pos < p0 || cell.pos >= p1) continue;
    POLYKV_CHECK(!cell.seqs.test(static_cast<size_t>(dst)));
    cell.seqs.set(static_cast<size_t>(dst));
    content_[static_cast<size_t>(dst)] += CellContent(cell.pos, cell.token, cell.adapters);
  }
}

void FakeBackend::CloneSequence(SeqId src, SeqId dst) {
  ShareRange(src, dst, 0, std::numeric_limits<Pos>::max());
  recurrence_[static_cast<size_t>(dst)] = recurrence_[static_cast<size_t>(src)];
}

bool FakeBackend::RemoveRange(SeqId seq, Pos p0, Pos p1) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  Recurrence& recurrence = recurrence_[static_cast<size_t>(seq)];
  if (p0 > 0 && p0 <= recurrence.last) return false;
  if (p0 == 0) recurrence = {};
  for (Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(seq))) continue;
    if (cell.pos < p0 || (p1 != kToEnd && cell.pos >= p1)) continue;
    cell.seqs.reset(static_cast<size_t>(seq));
    if (cell.seqs.none()) --n_used_;
    content_[static_cast<size_t>(seq)] -= CellContent(cell.pos, cell.token, cell.adapters);
  }
  return true;
}

void FakeBackend::ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max && info_.can_shift);
  uint64_t& content = content_[static_cast<size_t>(seq)];
  for (Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(seq))) continue;
    if (cell.pos < p0 || (p1 != kToEnd && cell.pos >= p1)) continue;
    POLYKV_CHECK(cell.seqs.count() == 1 && cell.pos + delta >= 0);
    content -= CellContent(cell.pos, cell.token, cell.adapters);
    cell.pos += delta;
    content += CellContent(cell.pos, cell.token, cell.adapters);
  }
}

Pos FakeBackend::MinPos(SeqId seq) const {
  if (options_.recurrent) return recurrence_[static_cast<size_t>(seq)].last;
  const std::vector<Pos> positions = Positions(seq);
  return positions.empty() ? -1 : positions.front();
}

// A line per cell: position, token, adapters.
Result<int64_t> FakeBackend::SaveSequence(SeqId seq, std::span<const Token> tokens,
                                          const std::string& path) {
  POLYKV_CHECK(Positions(seq).size() == tokens.size());
  std::ofstream file(path);
  for (const Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(seq))) continue;
    file << cell.pos << ' ' << cell.token << ' ' << cell.adapters << '\n';
  }
  const auto n_bytes = static_cast<int64_t>(file.tellp());
  file.close();
  if (!file) return Problem{.status = 500, .type = "server_error", .message = "cannot write"};
  return n_bytes;
}

Result<std::vector<FakeBackend::Cell>> FakeBackend::ReadCells(const std::string& path) const {
  std::ifstream file(path);
  std::vector<Cell> cells;
  for (Cell cell; file >> cell.pos >> cell.token >> cell.adapters;) cells.push_back(cell);
  const auto invalid = [&](const Cell& cell) {
    return cell.pos < 0 || cell.pos >= static_cast<Pos>(cells.size()) || cell.token < 0 ||
           cell.token >= info_.n_vocab;
  };
  if (!file.eof() || std::any_of(cells.begin(), cells.end(), invalid)) {
    return InvalidRequest("no saved sequence");
  }
  return cells;
}

Result<std::vector<Token>> FakeBackend::ReadSavedTokens(const std::string& path) const {
  const Result<std::vector<Cell>> cells = ReadCells(path);
  if (!cells.ok()) return cells.problem();
  std::vector<Token> tokens(cells.value().size());
  for (const Cell& cell : cells.value()) tokens[static_cast<size_t>(cell.pos)] = cell.token;
  return tokens;
}

Result<int64_t> FakeBackend::LoadSequence(SeqId seq, int32_t n_tokens, const std::string& path) {
  const Result<std::vector<Cell>> loaded = ReadCells(path);
  if (!loaded.ok()) return loaded.problem();
  const auto n_held = static_cast<int32_t>(Positions(seq).size());
  if (static_cast<int32_t>(loaded.value().size()) != n_tokens ||
      n_tokens > info_.n_ctx - n_used_ + n_held) {
    return InvalidRequest("no room");
  }
  RemoveRange(seq, 0, kToEnd);
  auto free = cells_.begin();
  for (Cell cell : loaded.value()) {
    free = std::find_if(free, cells_.end(), [](const Cell& other) { return other.seqs.none(); });
    cell.seqs.set(static_cast<size_t>(seq));
    *free = cell;
    content_[static_cast<size_t>(seq)] += CellContent(cell.pos, cell.token, cell.adapters);
  }
  n_used_ += n_tokens;
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

void FakeBackend::UseAdapters(const AdapterSet& adapters) {
  adapters_ = 0;
  for (const auto& [id, scale] : adapters.scales()) {
    POLYKV_CHECK(id < info_.n_adapters);
    adapters_ = Mix(adapters_ ^ (static_cast<uint64_t>(id) << 32) ^ std::bit_cast<uint32_t>(scale));
  }
}

DecodeStatus FakeBackend::Decode(const StepBatch& batch) {
  POLYKV_CHECK(info_.generates);
  return Compute(batch, /*all_are_outputs=*/false);
}

DecodeStatus FakeBackend::Embed(const StepBatch& batch) {
  POLYKV_CHECK(static_cast<int32_t>(batch.size()) <= info_.n_ubatch);
  for (const BatchToken& entry : batch) {
    const bool begins = Positions(entry.seq).empty();
    POLYKV_CHECK(begins || info_.embeds_in_parts);
  }
  embed_batches_.push_back(batch.size());
  const DecodeStatus status = Compute(batch, /*all_are_outputs=*/true);
  if (info_.generates) return status;
  for (const BatchToken& entry : batch) RemoveRange(entry.seq, 0, kToEnd);
  return status;
}

std::vector<float> FakeBackend::Vector(SeqId seq, int32_t output_index) const {
  uint64_t content = info_.pooled ? embedded_.at(seq) : outputs_.at(output_index);
  std::vector<float> vector;
  for (int i = 0; i < 4; ++i) {
    content = Mix(content);
    vector.push_back(static_cast<float>(content % 1'000) / 1'000);
  }
  return vector;
}

DecodeStatus FakeBackend::Compute(const StepBatch& batch, bool all_are_outputs) {
  POLYKV_CHECK(!batch.empty() && static_cast<int32_t>(batch.size()) <= info_.n_batch);
  if (options_.clock != nullptr) {
    options_.clock->AdvanceUs(options_.step_us +
                              options_.token_us * static_cast<TimeUs>(batch.size()));
  }
  const int32_t n_free = info_.n_ctx - n_used_;
  if (std::exchange(refuse_next_, false) || static_cast<int32_t>(batch.size()) > n_free) {
    return DecodeStatus::kNoRoom;
  }
  for (const BatchToken& entry : batch) {
    if (failing_seq_ != kNoSeq && entry.seq == failing_seq_) return DecodeStatus::kFailed;
  }
  outputs_.clear();
  embedded_.clear();
  size_t next_cell = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchToken& entry = batch[i];
    POLYKV_CHECK(entry.seq >= 0 && entry.seq < info_.n_seq_max);
    POLYKV_CHECK(entry.token >= 0 && entry.token < info_.n_vocab);
    while (cells_[next_cell].seqs.any()) ++next_cell;
    Put(cells_[next_cell], entry.seq, entry.pos, entry.token, adapters_);
    const uint64_t content = content_[static_cast<size_t>(entry.seq)];
    Recurrence& recurrence = recurrence_[static_cast<size_t>(entry.seq)];
    if (options_.recurrent) {
      recurrence = {Mix(recurrence.mix ^ CellContent(entry.pos, entry.token, adapters_)),
                    entry.pos};
    }
    const bool is_output = entry.output || all_are_outputs;
    if (is_output) outputs_[static_cast<int32_t>(i)] = content + recurrence.mix;
    embedded_[entry.seq] = content + recurrence.mix;
  }
  n_decoded_tokens_ += batch.size();
  return DecodeStatus::kOk;
}

void FakeBackend::Put(Cell& cell, SeqId seq, Pos pos, Token token, uint64_t adapters) {
  cell = {.pos = pos, .token = token, .adapters = adapters, .seqs = {}};
  cell.seqs.set(static_cast<size_t>(seq));
  ++n_used_;
  content_[static_cast<size_t>(seq)] += CellContent(pos, token, adapters);
}

std::vector<FakeBackend::SavedCell> FakeBackend::CellsOf(SeqId seq) const {
  std::vector<SavedCell> cells;
  for (const Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(seq))) continue;
    cells.push_back({cell.pos, cell.token, cell.adapters});
  }
  return cells;
}

size_t FakeBackend::StateSize(SeqId seq, StateParts parts) const {
  const size_t n_cells = parts == StateParts::kAll ? CellsOf(seq).size() : 0;
  return sizeof(Recurrence) + n_cells * sizeof(SavedCell);
}

void FakeBackend::SaveState(SeqId seq, StateParts parts, std::span<uint8_t> bytes) const {
  POLYKV_CHECK(bytes.size() == StateSize(seq, parts));
  std::memcpy(bytes.data(), &recurrence_[static_cast<size_t>(seq)], sizeof(Recurrence));
  if (parts == StateParts::kUnremovable) return;
  const std::vector<SavedCell> cells = CellsOf(seq);
  if (cells.empty()) return;
  std::memcpy(bytes.data() + sizeof(Recurrence), cells.data(), cells.size() * sizeof(SavedCell));
}

bool FakeBackend::LoadState(SeqId seq, StateParts parts, std::span<const uint8_t> bytes) {
  POLYKV_CHECK(bytes.size() >= sizeof(Recurrence));
  Recurrence& recurrence = recurrence_[static_cast<size_t>(seq)];
  if (parts == StateParts::kAll) {
    RemoveRange(seq, 0, kToEnd);
    const std::span<const uint8_t> saved = bytes.subspan(sizeof(Recurrence));
    std::vector<SavedCell> cells(saved.size() / sizeof(SavedCell));
    if (static_cast<int32_t>(cells.size()) > info_.n_ctx - n_used_) return false;
    if (!cells.empty()) std::memcpy(cells.data(), saved.data(), saved.size());
    size_t next_cell = 0;
    for (const SavedCell& cell : cells) {
      while (cells_[next_cell].seqs.any()) ++next_cell;
      Put(cells_[next_cell], seq, cell.pos, cell.token, cell.adapters);
    }
  }
  std::memcpy(&recurrence, bytes.data(), sizeof(Recurrence));
  return true;
}

Token FakeBackend::Choice(int32_t output_index) const {
  const auto it = outputs_.find(output_index);
  POLYKV_CHECK(it != outputs_.end());
  return ChoiceOf(it->second);
}

void FakeBackend::Sample(std::span<SampleJob> jobs) {
  for (SampleJob& job : jobs) job.Run();
}

Token FakeBackend::ChoiceAfter(SeqId seq, std::span<const Token> ahead) const {
  uint64_t content = content_[static_cast<size_t>(seq)];
  auto pos = static_cast<Pos>(Positions(seq).size());
  for (const Token token : ahead) content += CellContent(pos++, token, adapters_);
  return ChoiceOf(content);
}

Token FakeBackend::ChoiceOf(uint64_t content) const {
  const uint64_t choice = Mix(content);
  if (options_.eog_every > 0 && (choice >> 32) % static_cast<uint64_t>(options_.eog_every) == 0) {
    return kEndOfGeneration;
  }
  return 1 + 'a' + static_cast<Token>(choice % 26);
}

std::string FakeBackend::TokenText(Token token, bool special) const {
  if (token == kEndOfGeneration) return special ? "<eog>" : "";
  return std::string(1, static_cast<char>(token - 1));
}

std::vector<Token> FakeBackend::Tokenize(std::string_view text, bool /*add_special*/,
                                         bool /*parse_special*/) const {
  std::vector<Token> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(1 + static_cast<Token>(static_cast<uint8_t>(c)));
  return tokens;
}

std::unique_ptr<Sampler> FakeBackend::MakeSampler(const std::string& reasoning_end) {
  return std::make_unique<GreedySampler>(this, Tokenize(reasoning_end, false, false));
}

std::vector<Pos> FakeBackend::Positions(SeqId seq) const {
  std::vector<Pos> positions;
  for (const Cell& cell : cells_) {
    if (cell.seqs.test(static_cast<size_t>(seq))) positions.push_back(cell.pos);
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}

}  // namespace polykv
