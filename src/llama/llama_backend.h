// ModelBackend on libllama: one model, one context, one KV cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "common.h"
#include "kv/model_backend.h"
#include "kv/step_batch.h"
#include "llama-cpp.h"
#include "llama.h"
#include "llama/llama_drafter.h"

namespace polykv {

// Threads: as ModelBackend says. The plain accessors may be used from any thread; whatever changes
// the context behind them is for the engine thread alone.
class LlamaBackend final : public ModelBackend {
 public:
  // Loads the model and makes a context for `n_seq_max` sequences; nothing else differs from what
  // llama-server would make of `params`, and params().n_parallel keeps the caller's value. In a
  // split cache (not kv_unified) the cells grow with n_seq_max, so that each sequence keeps the
  // context that n_parallel of them would have had.
  //
  // With `test_sharing`, info().sharing is off if a trial of it fails (llama/sharing_trial).
  //
  // A Problem says in one line what is wrong: no model file, not a model, no memory for the
  // context, neither text generation nor --embedding. libllama's own log has the details.
  //
  // REQUIRES: llama_backend_init() was called; 1 <= params.n_parallel <= n_seq_max; with
  // params.embedding, n_seq_max divides min(params.n_ctx, params.n_ubatch).
  static Result<std::unique_ptr<LlamaBackend>> Load(common_params params, int32_t n_seq_max,
                                                    bool test_sharing = false);

  LlamaBackend(const LlamaBackend&) = delete;
  LlamaBackend& operator=(const LlamaBackend&) = delete;

  llama_model* model() const { return model_; }
  llama_context* context() const { return context_; }
  const llama_vocab* vocab() const { return vocab_; }

  // The parameters after loading, with the model's sampling defaults and LoRA handles filled in;
  // ctx_shift is false where the memory cannot.
  const common_params& params() const { return params_; }

  // -infinity for every token that ends a generation: what "ignore_eos" adds to a request's biases.
  const std::vector<llama_logit_bias>& logit_bias_eog() const {
    return params_.sampling.logit_bias_eog;
  }

  // The logits at `output_index` of the last Decode, n_vocab of them; valid until the next Decode.
  // REQUIRES: that token was an output. Engine thread.
  std::span<const float> Logits(int32_t output_index) const;

  // Operations that Decode and Embed have computed, counted as they go where a CPU computes them:
  // it grows also during a long one. Any thread.
  uint64_t n_operations() const { return n_operations_.load(std::memory_order_relaxed); }

  const ModelInfo& info() const override { return info_; }
  void ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) override;
  void CloneSequence(SeqId src, SeqId dst) override;
  bool RemoveRange(SeqId seq, Pos p0, Pos p1) override;
  void ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) override;
  Pos MinPos(SeqId seq) const override;
  int32_t HighestCell() const override;
  std::vector<MemoryUse> MemoryUses() const override;
  size_t StateSize(SeqId seq, StateParts parts) const override;
  void SaveState(SeqId seq, StateParts parts, std::span<uint8_t> bytes) const override;
  bool LoadState(SeqId seq, StateParts parts, std::span<const uint8_t> bytes) override;
  Result<int64_t> SaveSequence(SeqId seq, std::span<const Token> tokens,
                               const std::string& path) override;
  Result<std::vector<Token>> ReadSavedTokens(const std::string& path) const override;
  Result<int64_t> LoadSequence(SeqId seq, int32_t n_tokens, const std::string& path) override;
  void UseAdapters(const AdapterSet& adapters) override;
  DecodeStatus Decode(const StepBatch& batch) override;
  void Sample(std::span<SampleJob> jobs) override;
  LlamaDrafter* drafter() override { return drafter_.get(); }
  DecodeStatus Embed(const StepBatch& batch) override;
  std::vector<float> Vector(SeqId seq, int32_t output_index) const override;
  bool IsEndOfGeneration(Token token) const override;
  std::string TokenText(Token token, bool special) const override;
  std::vector<Token> Tokenize(std::string_view text, bool add_special,
                              bool parse_special) const override;

 private:
  LlamaBackend(common_params params, common_init_result_ptr loaded);

  static Result<std::unique_ptr<LlamaBackend>> LoadHere(common_params params, int32_t n_seq_max,
                                                        bool test_sharing);

  void ProbeMemory();
  void TestSharing();
  bool HasDraftState(StateParts parts) const;
  std::optional<Problem> LoadDrafter();
  DecodeStatus Compute(const StepBatch& batch, bool all_are_outputs);
  void RemoveBatch(const StepBatch& batch);

  // Constant after Load.
  common_params params_;
  common_init_result_ptr loaded_;  // owns model, context, adapters, thread pools
  llama_model* model_;
  llama_context* context_;
  llama_memory_t memory_;  // null: not info_.generates
  const llama_vocab* vocab_;
  ModelInfo info_;

  std::atomic<uint64_t> n_operations_{0};

  // Engine thread only.
  std::vector<SampleJob*> in_order_;  // scratch of Sample
  llama_batch_ext_ptr batch_;         // its storage is reused from step to step
  std::unique_ptr<LlamaDrafter> drafter_;
};

}  // namespace polykv
