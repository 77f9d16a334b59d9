// A backend whose every operation costs next to nothing, whatever is in the cache: what is left is
// the engine's own time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kv/model_backend.h"

namespace polykv {

class NullBackend final : public ModelBackend {
 public:
  NullBackend(int32_t n_ctx, int32_t n_seq_max) {
    info_.n_vocab = 256;
    info_.n_ctx = n_ctx;
    info_.n_ctx_seq = n_ctx;
    info_.n_seq_max = n_seq_max;
    info_.n_batch = 2'048;
    info_.n_ubatch = 512;
    info_.bytes_per_cell = 1'024;
  }

  int64_t n_decodes() const { return n_decodes_.load(std::memory_order_relaxed); }  // any thread

  const ModelInfo& info() const override { return info_; }
  void ShareRange(SeqId, SeqId, Pos, Pos) override {}
  void CloneSequence(SeqId, SeqId) override {}
  bool RemoveRange(SeqId, Pos, Pos) override { return true; }
  void ShiftPositions(SeqId, Pos, Pos, Pos) override {}
  Pos MinPos(SeqId) const override { return 0; }
  int32_t HighestCell() const override { return -1; }
  std::vector<MemoryUse> MemoryUses() const override { return {}; }
  size_t StateSize(SeqId, StateParts) const override { return 0; }
  void SaveState(SeqId, StateParts, std::span<uint8_t>) const override {}
  bool LoadState(SeqId, StateParts, std::span<const uint8_t>) override { return true; }
  Result<int64_t> SaveSequence(SeqId, std::span<const Token>, const std::string&) override {
    return InvalidRequest("no files");
  }
  Result<std::vector<Token>> ReadSavedTokens(const std::string&) const override {
    return InvalidRequest("no files");
  }
  Result<int64_t> LoadSequence(SeqId, int32_t, const std::string&) override {
    return InvalidRequest("no files");
  }
  void UseAdapters(const AdapterSet&) override {}
  DecodeStatus Decode(const StepBatch&) override {
    n_decodes_.fetch_add(1, std::memory_order_relaxed);
    return DecodeStatus::kOk;
  }
  DecodeStatus Embed(const StepBatch&) override { return DecodeStatus::kFailed; }
  std::vector<float> Vector(SeqId, int32_t) const override { return {}; }
  void Sample(std::span<SampleJob> jobs) override {
    for (SampleJob& job : jobs) job.Run();
  }
  Drafter* drafter() override { return nullptr; }
  bool IsEndOfGeneration(Token) const override { return false; }
  std::string TokenText(Token, bool) const override { return "a"; }
  std::vector<Token> Tokenize(std::string_view, bool, bool) const override { return {}; }

 private:
  ModelInfo info_;
  std::atomic<int64_t> n_decodes_{0};
};

}  // namespace polykv
