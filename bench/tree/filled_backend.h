// A backend that fills cells instead of computing them, for measurements that hang on how many
// cells there are and not on what is in them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kv/model_backend.h"

namespace polykv {

// Stands on another backend, of whose sequences it takes the last one for itself. A batch without
// outputs becomes copies of a saved state, moved to the batch's positions.
class FilledBackend final : public ModelBackend {
 public:
  enum class Computes {
    kOutputs,  // batches with an output
    kNothing,  // those are filled too; samplers must not look at logits
  };
  static constexpr int32_t kBlock = 2'048;  // cells of the saved state

  // `inner` and `clock` outlive it. Computes kBlock tokens. REQUIRES: nothing is in the cache,
  // which has room for a block besides what is filled; unified, any range can be shared and moved.
  FilledBackend(ModelBackend* inner, const Clock* clock, Computes computes);

  // When the last Decode began and ended.
  TimeUs began_at() const { return began_at_; }
  TimeUs ended_at() const { return ended_at_; }

  const ModelInfo& info() const override { return info_; }
  void ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) override {
    inner_->ShareRange(src, dst, p0, p1);
  }
  void CloneSequence(SeqId src, SeqId dst) override { inner_->CloneSequence(src, dst); }
  bool RemoveRange(SeqId seq, Pos p0, Pos p1) override { return inner_->RemoveRange(seq, p0, p1); }
  void ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) override {
    inner_->ShiftPositions(seq, p0, p1, delta);
  }
  Pos MinPos(SeqId seq) const override { return inner_->MinPos(seq); }
  int32_t HighestCell() const override { return inner_->HighestCell(); }
  std::vector<MemoryUse> MemoryUses() const override { return inner_->MemoryUses(); }
  size_t StateSize(SeqId seq, StateParts parts) const override {
    return inner_->StateSize(seq, parts);
  }
  void SaveState(SeqId seq, StateParts parts, std::span<uint8_t> bytes) const override {
    inner_->SaveState(seq, parts, bytes);
  }
  bool LoadState(SeqId seq, StateParts parts, std::span<const uint8_t> bytes) override {
    return inner_->LoadState(seq, parts, bytes);
  }
  Result<int64_t> SaveSequence(SeqId seq, std::span<const Token> tokens,
                               const std::string& path) override {
    return inner_->SaveSequence(seq, tokens, path);
  }
  Result<std::vector<Token>> ReadSavedTokens(const std::string& path) const override {
    return inner_->ReadSavedTokens(path);
  }
  Result<int64_t> LoadSequence(SeqId seq, int32_t n_tokens, const std::string& path) override {
    return inner_->LoadSequence(seq, n_tokens, path);
  }
  void UseAdapters(const AdapterSet& adapters) override { inner_->UseAdapters(adapters); }
  DecodeStatus Decode(const StepBatch& batch) override;
  DecodeStatus Embed(const StepBatch& batch) override { return inner_->Embed(batch); }
  std::vector<float> Vector(SeqId seq, int32_t output_index) const override {
    return inner_->Vector(seq, output_index);
  }
  void Sample(std::span<SampleJob> jobs) override;
  Drafter* drafter() override { return inner_->drafter(); }
  bool IsEndOfGeneration(Token token) const override { return inner_->IsEndOfGeneration(token); }
  std::string TokenText(Token token, bool special) const override {
    return inner_->TokenText(token, special);
  }
  std::vector<Token> Tokenize(std::string_view text, bool add_special,
                              bool parse_special) const override {
    return inner_->Tokenize(text, add_special, parse_special);
  }

 private:
  const std::vector<uint8_t>& StateOf(int32_t n_tokens);  // of that many computed tokens
  bool Fill(SeqId seq, Pos begin, int32_t n_cells);
  DecodeStatus FillBatch(const StepBatch& batch);

  ModelBackend* inner_;
  const Clock* clock_;
  const Computes computes_;
  ModelInfo info_;
  SeqId scratch_;
  std::map<int32_t, std::vector<uint8_t>> states_;  // by their number of tokens
  TimeUs began_at_ = 0;
  TimeUs ended_at_ = 0;
};

}  // namespace polykv
