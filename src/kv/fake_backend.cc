#include "kv/fake_backend.h"

#include <algorithm>
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

uint64_t CellContent(Pos pos, Token token) {
  return Mix((static_cast<uint64_t>(pos) << 32) ^ static_cast<uint32_t>(token));
}

class GreedySampler final : public Sampler {
 public:
  explicit GreedySampler(const FakeBackend* backend) : backend_(backend) {}
  void AcceptPrompt(std::span<const Token>) override {}
  SampledToken Sample(int32_t output_index) override {
    SampledToken sampled;
    sampled.token = backend_->Choice(output_index);
    return sampled;
  }

 private:
  const FakeBackend* backend_;
};

}  // namespace

FakeBackend::FakeBackend(FakeBackendOptions options)
    : options_(options),
      cells_(static_cast<size_t>(options.n_ctx)),
      content_(static_cast<size_t>(options.n_seq_max)) {
  POLYKV_CHECK(options.n_seq_max <= static_cast<int32_t>(kMaxSeq));
  info_.n_vocab = 257;
  info_.n_ctx = options.n_ctx;
  info_.n_ctx_seq = options.n_ctx;
  info_.n_ctx_train = options.n_ctx;
  info_.n_seq_max = options.n_seq_max;
  info_.n_batch = options.n_batch;
  info_.n_ubatch = options.n_ubatch;
  info_.bytes_per_cell = 1024;
}

void FakeBackend::ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) {
  POLYKV_CHECK(src != dst && dst < info_.n_seq_max && src < info_.n_seq_max);
  for (Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(src)) || cell.pos < p0 || cell.pos >= p1) continue;
    POLYKV_CHECK(!cell.seqs.test(static_cast<size_t>(dst)));
    cell.seqs.set(static_cast<size_t>(dst));
    content_[static_cast<size_t>(dst)] += CellContent(cell.pos, cell.token);
  }
}

void FakeBackend::CloneSequence(SeqId src, SeqId dst) {
  ShareRange(src, dst, 0, std::numeric_limits<Pos>::max());
}

bool FakeBackend::RemoveRange(SeqId seq, Pos p0, Pos p1) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  for (Cell& cell : cells_) {
    if (!cell.seqs.test(static_cast<size_t>(seq))) continue;
    if (cell.pos < p0 || (p1 != kToEnd && cell.pos >= p1)) continue;
    cell.seqs.reset(static_cast<size_t>(seq));
    if (cell.seqs.none()) --n_used_;
    content_[static_cast<size_t>(seq)] -= CellContent(cell.pos, cell.token);
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
    content -= CellContent(cell.pos, cell.token);
    cell.pos += delta;
    content += CellContent(cell.pos, cell.token);
  }
}

Pos FakeBackend::MinPos(SeqId seq) const {
  const std::vector<Pos> positions = Positions(seq);
  return positions.empty() ? -1 : positions.front();
}

DecodeStatus FakeBackend::Decode(const StepBatch& batch) {
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
  size_t next_cell = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchToken& entry = batch[i];
    POLYKV_CHECK(entry.seq >= 0 && entry.seq < info_.n_seq_max);
    POLYKV_CHECK(entry.token >= 0 && entry.token < info_.n_vocab);
    while (cells_[next_cell].seqs.any()) ++next_cell;
    Cell& cell = cells_[next_cell];
    cell.pos = entry.pos;
    cell.token = entry.token;
    cell.seqs.set(static_cast<size_t>(entry.seq));
    ++n_used_;
    uint64_t& content = content_[static_cast<size_t>(entry.seq)];
    content += CellContent(entry.pos, entry.token);
    if (entry.output) outputs_[static_cast<int32_t>(i)] = content;
  }
  n_decoded_tokens_ += batch.size();
  return DecodeStatus::kOk;
}

Token FakeBackend::Choice(int32_t output_index) const {
  const auto it = outputs_.find(output_index);
  POLYKV_CHECK(it != outputs_.end());
  const uint64_t choice = Mix(it->second);
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

std::unique_ptr<Sampler> FakeBackend::MakeSampler() {
  return std::make_unique<GreedySampler>(this);
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
