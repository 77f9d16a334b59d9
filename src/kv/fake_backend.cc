#include "kv/fake_backend.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/check.h"

namespace polykv {
namespace {

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

FakeBackend::FakeBackend(const FakeBackendOptions& options)
    : options_(options),
      cells_(options.n_ctx, options.n_seq_max, options.n_swa, options.unified),
      recurrence_(static_cast<size_t>(options.n_seq_max)) {
  info_.n_vocab = 257;
  info_.n_ctx = options.n_ctx;
  info_.n_ctx_seq = options.unified ? options.n_ctx : options.n_ctx / options.n_seq_max;
  info_.n_ctx_train = info_.n_ctx_seq;
  info_.n_seq_max = options.n_seq_max;
  info_.n_batch = options.n_batch;
  info_.n_ubatch = options.n_ubatch;
  info_.bytes_per_cell = 1024;
  info_.n_adapters = options.n_adapters;
  info_.generates = options.generates;
  info_.pooled = options.pooled;
  info_.embeds_in_parts = options.embeds_in_parts;
  info_.unified = options.unified;
  info_.saved_window = options.n_swa;
  info_.n_swa = options.n_swa;
  if (options.n_swa > 0) info_.sharing = Sharing::kWindow;
  if (options.recurrent) {
    info_.removes_ends = false;
    info_.sharing = Sharing::kAtTip;
  }
  if (options.n_draft > 0) drafter_.emplace(this, options.n_draft, options.wrong_every);
}

void FakeBackend::ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) {
  POLYKV_CHECK(src != dst && dst < info_.n_seq_max && src < info_.n_seq_max);
  POLYKV_CHECK(info_.unified || (p0 == 0 && Positions(dst).empty()));
  const Recurrence& tip = recurrence_[static_cast<size_t>(src)];
  POLYKV_CHECK(info_.unified || p1 == kToEnd || p1 > tip.last);
  cells_.Share(src, dst, p0, p1);
  recurrence_[static_cast<size_t>(dst)] = tip;
}

void FakeBackend::CloneSequence(SeqId src, SeqId dst) { ShareRange(src, dst, 0, kToEnd); }

bool FakeBackend::RemoveRange(SeqId seq, Pos p0, Pos p1) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  Recurrence& recurrence = recurrence_[static_cast<size_t>(seq)];
  if (p0 > 0 && p0 <= recurrence.last) return false;
  if (p0 == 0) recurrence = {};
  cells_.Remove(seq, p0, p1);
  return true;
}

void FakeBackend::ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max && info_.can_shift);
  cells_.Shift(seq, p0, p1, delta);
}

Pos FakeBackend::MinPos(SeqId seq) const {
  return options_.recurrent ? recurrence_[static_cast<size_t>(seq)].last : cells_.MinPos(seq);
}

std::vector<MemoryUse> FakeBackend::MemoryUses() const {
  std::vector<MemoryUse> uses = {
      {"attn", cells_.n_used(), info_.n_ctx, info_.n_ctx * info_.bytes_per_cell}};
  if (info_.n_swa > 0) {
    uses.push_back({"swa", cells_.n_in_window(), info_.n_ctx, info_.n_ctx * info_.bytes_per_cell});
  }
  if (options_.recurrent) {
    const auto n_used = std::count_if(recurrence_.begin(), recurrence_.end(),
                                      [](const Recurrence& state) { return state.last >= 0; });
    uses.push_back({"recurrent", static_cast<int32_t>(n_used), info_.n_seq_max,
                    info_.n_seq_max * static_cast<int64_t>(sizeof(Recurrence))});
  }
  return uses;
}

// A line per cell: position, token, adapters.
Result<int64_t> FakeBackend::SaveSequence(SeqId seq, std::span<const Token> tokens,
                                          const std::string& path) {
  POLYKV_CHECK(Positions(seq).size() == tokens.size());
  std::ofstream file(path);
  for (const FakeCell& cell : cells_.CellsOf(seq)) {
    file << cell.pos << ' ' << cell.token << ' ' << cell.adapters << '\n';
  }
  const auto n_bytes = static_cast<int64_t>(file.tellp());
  file.close();
  if (!file) return Problem{.status = 500, .type = "server_error", .message = "cannot write"};
  return n_bytes;
}

Result<std::vector<FakeCell>> FakeBackend::ReadCells(const std::string& path) const {
  std::ifstream file(path);
  std::vector<FakeCell> cells;
  for (FakeCell cell; file >> cell.pos >> cell.token >> cell.adapters;) cells.push_back(cell);
  const auto invalid = [&](const FakeCell& cell) {
    return cell.pos < 0 || cell.pos >= static_cast<Pos>(cells.size()) || cell.token < 0 ||
           cell.token >= info_.n_vocab;
  };
  if (!file.eof() || std::any_of(cells.begin(), cells.end(), invalid)) {
    return InvalidRequest("no saved sequence");
  }
  return cells;
}

Result<std::vector<Token>> FakeBackend::ReadSavedTokens(const std::string& path) const {
  const Result<std::vector<FakeCell>> cells = ReadCells(path);
  if (!cells.ok()) return cells.problem();
  std::vector<Token> tokens(cells.value().size());
  for (const FakeCell& cell : cells.value()) tokens[static_cast<size_t>(cell.pos)] = cell.token;
  return tokens;
}

Result<int64_t> FakeBackend::LoadSequence(SeqId seq, int32_t n_tokens, const std::string& path) {
  const Result<std::vector<FakeCell>> loaded = ReadCells(path);
  if (!loaded.ok()) return loaded.problem();
  if (static_cast<int32_t>(loaded.value().size()) != n_tokens ||
      !cells_.HasRoomFor(
          seq, loaded.value().size() - std::min(loaded.value().size(), Positions(seq).size()))) {
    return InvalidRequest("no room");
  }
  RemoveRange(seq, 0, kToEnd);
  for (const FakeCell& cell : loaded.value()) cells_.Put(seq, cell);
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

void FakeBackend::UseAdapters(const AdapterSet& adapters) {
  adapters_ = 0;
  for (const auto& [id, scale] : adapters.scales()) {
    POLYKV_CHECK(id < info_.n_adapters);
    adapters_ = FakeCells::Mix(adapters_ ^ (static_cast<uint64_t>(id) << 32) ^
                               std::bit_cast<uint32_t>(scale));
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
    content = FakeCells::Mix(content);
    vector.push_back(static_cast<float>(content % 1'000) / 1'000);
  }
  return vector;
}

DecodeStatus FakeBackend::Compute(const StepBatch& batch, bool all_are_outputs) {
  POLYKV_CHECK(!batch.empty() && static_cast<int32_t>(batch.size()) <= info_.n_batch);
  if (options_.clock != nullptr) {
    options_.clock->AdvanceUs(options_.step_cost
                                  ? options_.step_cost(batch)
                                  : options_.step_us +
                                        options_.token_us * static_cast<TimeUs>(batch.size()));
  }
  if (std::exchange(refuse_next_, false) || !cells_.HasRoomFor(batch)) {
    return DecodeStatus::kNoRoom;
  }
  for (const BatchToken& entry : batch) {
    if (failing_seq_ != kNoSeq && entry.seq == failing_seq_) return DecodeStatus::kFailed;
  }
  outputs_.clear();
  embedded_.clear();
  const auto n_ubatch = static_cast<size_t>(info_.n_ubatch);
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchToken& entry = batch[i];
    if (i % n_ubatch == 0) {
      cells_.MoveWindows(std::span(batch).subspan(i, std::min(n_ubatch, batch.size() - i)));
    }
    POLYKV_CHECK(entry.seq >= 0 && entry.seq < info_.n_seq_max);
    POLYKV_CHECK(entry.token >= 0 && entry.token < info_.n_vocab);
    cells_.Put(entry.seq, {.pos = entry.pos, .token = entry.token, .adapters = adapters_});
    Recurrence& recurrence = recurrence_[static_cast<size_t>(entry.seq)];
    if (options_.recurrent) {
      const uint64_t cell = FakeCells::ContentOf(entry.pos, entry.token, adapters_);
      recurrence = {FakeCells::Mix(recurrence.mix ^ cell), entry.pos};
    }
    if (!entry.output && !all_are_outputs) continue;
    const uint64_t content = cells_.SeenContent(entry.seq) + recurrence.mix;
    outputs_[static_cast<int32_t>(i)] = content;
    embedded_[entry.seq] = content;
  }
  n_decoded_tokens_ += batch.size();
  return DecodeStatus::kOk;
}

// A state is the recurrence, then cells: all, or with a window those that it has.
size_t FakeBackend::SavedCells(SeqId seq, StateParts parts) const {
  const std::vector<FakeCell> cells = cells_.CellsOf(seq);
  if (parts == StateParts::kAll) return cells.size();
  if (info_.n_swa == 0) return 0;
  return static_cast<size_t>(std::count_if(cells.begin(), cells.end(),
                                           [](const FakeCell& cell) { return cell.in_window; }));
}

size_t FakeBackend::StateSize(SeqId seq, StateParts parts) const {
  return sizeof(Recurrence) + SavedCells(seq, parts) * sizeof(FakeCell);
}

void FakeBackend::SaveState(SeqId seq, StateParts parts, std::span<uint8_t> bytes) const {
  POLYKV_CHECK(bytes.size() == StateSize(seq, parts));
  std::memcpy(bytes.data(), &recurrence_[static_cast<size_t>(seq)], sizeof(Recurrence));
  std::vector<FakeCell> cells = cells_.CellsOf(seq);
  Pos last = -1;
  for (const FakeCell& cell : cells) last = std::max(last, cell.pos);
  if (parts == StateParts::kUnremovable) {
    std::erase_if(cells,
                  [this](const FakeCell& cell) { return info_.n_swa == 0 || !cell.in_window; });
  }
  for (FakeCell& cell : cells) {
    const bool seen = info_.n_swa == 0 || last - cell.pos < info_.n_swa;
    cell.in_window = cell.in_window && (seen || parts == StateParts::kUnremovable);
  }
  if (cells.empty()) return;
  std::memcpy(bytes.data() + sizeof(Recurrence), cells.data(), cells.size() * sizeof(FakeCell));
}

bool FakeBackend::LoadState(SeqId seq, StateParts parts, std::span<const uint8_t> bytes) {
  POLYKV_CHECK(bytes.size() >= sizeof(Recurrence));
  const std::span<const uint8_t> saved = bytes.subspan(sizeof(Recurrence));
  std::vector<FakeCell> cells(saved.size() / sizeof(FakeCell));
  if (!cells.empty()) std::memcpy(cells.data(), saved.data(), saved.size());
  if (parts == StateParts::kAll) {
    RemoveRange(seq, 0, kToEnd);
    if (!cells_.HasRoomFor(seq, cells.size())) return false;
    for (const FakeCell& cell : cells) cells_.Put(seq, cell);
  } else if (info_.n_swa > 0) {
    std::vector<Pos> positions;
    for (const FakeCell& cell : cells) positions.push_back(cell.pos);
    cells_.SetWindow(seq, positions);
  }
  std::memcpy(&recurrence_[static_cast<size_t>(seq)], bytes.data(), sizeof(Recurrence));
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
  uint64_t content = cells_.Content(seq);
  auto pos = static_cast<Pos>(Positions(seq).size());
  for (const Token token : ahead) content += FakeCells::ContentOf(pos++, token, adapters_);
  return ChoiceOf(content);
}

Token FakeBackend::ChoiceOf(uint64_t content) const {
  const uint64_t choice = FakeCells::Mix(content);
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

}  // namespace polykv
