// Drafter on llama.cpp's common_speculative: by n-grams of what a stream has said, or by a small
// model beside the large one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "common.h"
#include "kv/drafter.h"
#include "kv/step_batch.h"
#include "llama.h"
#include "speculative.h"

namespace polykv {

struct ModelInfo;

// Leaves the kinds of speculation that work here: n-grams and a plain draft model. Logs the others.
void KeepSupportedDrafters(common_params* params);

// Whether a stream's drafts may come from what other streams have said.
bool DraftsFromOthers(const common_params& params);

// A draft model has a context of its own. It holds the cells that the model holds, sequence by
// sequence, so that a stream that starts from shared cells drafts as well as one that computed
// them: the backend repeats here what it does there. Cells that could not be repeated are missed
// by the drafts alone. Engine thread, except where Drafter says otherwise.
class LlamaDrafter final : public Drafter {
 public:
  // What `params` ask for, as llama-server reads them, with params.n_parallel sequences. Null if
  // that is nothing, or if it cannot work with this model: then the log says why. A Problem if the
  // draft model cannot be loaded, or if synthetic acceptance was asked for and cannot be.
  // `model` and `context` outlive the drafter.
  static Result<std::unique_ptr<LlamaDrafter>> Load(const common_params& params, llama_model* model,
                                                    llama_context* context, const ModelInfo& info);

  int32_t n_max() const override { return n_max_; }
  void Begin(SeqId seq, const std::vector<Token>& prompt) override;
  void Draft(std::span<DraftRequest> requests) override;
  void Accept(SeqId seq, int32_t n_accepted) override;

  // What the model's context has done, to be done to the draft model's.
  void ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1);
  void RemoveRange(SeqId seq, Pos p0, Pos p1);
  void ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta);
  void Decode(const StepBatch& batch);

  // The draft model's cells of a sequence, as bytes behind the model's own.
  size_t StateSize(SeqId seq) const;  // 0: n-grams
  void SaveState(SeqId seq, std::span<uint8_t> bytes) const;
  void LoadState(SeqId seq, std::span<const uint8_t> bytes);

  // Synthetic acceptance, a benchmark of llama.cpp's: the chance with which a draft's token at each
  // place is accepted, whatever the model says. Empty: the model decides.
  std::span<const double> synthetic_acceptance() const;

 private:
  LlamaDrafter(const common_params_speculative& params,
               common_speculative_init_result_ptr draft_model, llama_context* context,
               const ModelInfo& info);
  // Forgets the sequence's cells if they do not end at `n_tokens`.
  void Align(SeqId seq, Pos n_tokens);

  common_params_speculative params_;
  common_speculative_init_result_ptr draft_model_;  // null: n-grams
  llama_memory_t memory_ = nullptr;                 // the draft model's; null: n-grams
  const bool unified_;                              // ModelInfo::unified, here too
  common_speculative_ptr speculative_;
  common_batch batch_;
  int32_t n_max_ = 0;
  std::vector<size_t> n_known_;  // per sequence: tokens at the latest Begin or Draft
};

}  // namespace polykv
