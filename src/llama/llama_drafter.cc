#include "llama/llama_drafter.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/check.h"
#include "kv/model_backend.h"
#include "llama/cell_share.h"
#include "log.h"

namespace polykv {
namespace {

bool Has(const common_params_speculative& params, common_speculative_type type) {
  return std::find(params.types.begin(), params.types.end(), type) != params.types.end();
}

bool IsSupported(common_speculative_type type) {
  switch (type) {
    case COMMON_SPECULATIVE_TYPE_NONE:
    case COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE:
    case COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE:
    case COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K:
    case COMMON_SPECULATIVE_TYPE_NGRAM_MAP_K4V:
    case COMMON_SPECULATIVE_TYPE_NGRAM_MOD:
    case COMMON_SPECULATIVE_TYPE_NGRAM_CACHE:
      return true;
    default:
      return false;
  }
}

bool IsAskedFor(const common_params_speculative& params) {
  return std::any_of(params.types.begin(), params.types.end(),
                     [](auto type) { return type != COMMON_SPECULATIVE_TYPE_NONE; });
}

// Why the target cannot speculate; empty: it can.
std::string TargetObstacle(const ModelInfo& info) {
  if (!info.removes_ends) {
    return "the model's memory cannot take back tokens";
  }
  if (info.n_swa > 0 && !info.unified) {
    return "the model's sliding window in a split cache cannot take back tokens";
  }
  return "";
}

Problem DraftProblem(std::string message) {
  return {.status = 500, .type = "server_error", .message = std::move(message)};
}

// No drafter, and why; a benchmark of synthetic acceptance makes no sense then.
Result<std::unique_ptr<LlamaDrafter>> Without(const common_params_speculative& params,
                                              const std::string& reason) {
  if (params.has_synth()) return DraftProblem("no synthetic acceptance: " + reason);
  LOG_WRN("%s: no speculative decoding: %s\n", __func__, reason.c_str());
  return std::unique_ptr<LlamaDrafter>();
}

}  // namespace

void KeepSupportedDrafters(common_params* params) {
  std::vector<common_speculative_type>& types = params->speculative.types;
  for (const common_speculative_type type : types) {
    if (IsSupported(type)) continue;
    LOG_WRN("%s: speculative decoding of type %s is not supported\n", __func__,
            common_speculative_type_to_str(type).c_str());
  }
  std::erase_if(types, [](auto type) { return !IsSupported(type); });
  if (!Has(params->speculative, COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE)) {
    params->speculative.draft.mparams = {};  // nobody would use it
  }
}

bool DraftsFromOthers(const common_params& params) {
  return Has(params.speculative, COMMON_SPECULATIVE_TYPE_NGRAM_MOD) ||
         Has(params.speculative, COMMON_SPECULATIVE_TYPE_NGRAM_CACHE);
}

Result<std::unique_ptr<LlamaDrafter>> LlamaDrafter::Load(const common_params& params,
                                                         llama_model* model, llama_context* context,
                                                         const ModelInfo& info) {
  const common_params_speculative& wanted = params.speculative;
  if (!IsAskedFor(wanted)) {
    return wanted.has_synth() ? Without(wanted, "no --spec-type given")
                              : std::unique_ptr<LlamaDrafter>();
  }
  const std::string obstacle = TargetObstacle(info);
  if (!obstacle.empty()) return Without(wanted, obstacle);

  common_speculative_init_result_ptr draft_model;
  if (wanted.has_dft()) {
    common_params draft_params = common_base_params_to_speculative(params);
    draft_model = common_speculative_init_from_params(draft_params, model, context);
    if (draft_model->context() == nullptr) {
      return DraftProblem("cannot load the draft model '" + wanted.draft.mparams.path + "'");
    }
    if (common_context_can_seq_rm(draft_model->context()) != COMMON_CONTEXT_SEQ_RM_TYPE_PART) {
      return Without(wanted, "the draft model's memory cannot take back tokens");
    }
  }
  try {
    return std::unique_ptr<LlamaDrafter>(
        new LlamaDrafter(wanted, std::move(draft_model), context, info));
  } catch (const std::exception& error) {
    return Without(wanted, error.what());
  }
}

LlamaDrafter::LlamaDrafter(const common_params_speculative& params,
                           common_speculative_init_result_ptr draft_model, llama_context* context,
                           const ModelInfo& info)
    : params_(params),
      draft_model_(std::move(draft_model)),
      unified_(info.unified),
      n_known_(static_cast<size_t>(info.n_seq_max)) {
  params_.draft.ctx_tgt = context;
  params_.draft.ctx_dft = draft_model_ != nullptr ? draft_model_->context() : nullptr;
  speculative_.reset(common_speculative_init(params_, static_cast<uint32_t>(info.n_seq_max)));
  POLYKV_CHECK(speculative_ != nullptr);
  n_max_ = common_speculative_n_max(speculative_.get());
  if (draft_model_ == nullptr) return;
  memory_ = llama_get_memory(draft_model_->context());
  batch_ = common_batch(context);
}

void LlamaDrafter::Begin(SeqId seq, const std::vector<Token>& prompt) {
  common_speculative_begin(speculative_.get(), seq, prompt);
  n_known_[static_cast<size_t>(seq)] = prompt.size();
}

void LlamaDrafter::Draft(std::span<DraftRequest> requests) {
  for (DraftRequest& request : requests) {
    // N-gram maps abort on a stream that has become shorter since they saw it.
    size_t& n_known = n_known_[static_cast<size_t>(request.seq)];
    if (request.tokens->size() < n_known) Begin(request.seq, *request.tokens);
    n_known = request.tokens->size();
    const auto n_tokens = static_cast<Pos>(request.tokens->size());
    Align(request.seq, n_tokens);
    common_speculative_get_draft_params(speculative_.get(), request.seq) = {
        .drafting = true,
        .n_max = request.n_max,
        .pos0 = n_tokens,
        .id_last = request.last,
        .prompt = request.tokens,
        .result = &request.draft};
  }
  common_speculative_draft(speculative_.get());
  for (const DraftRequest& request : requests) {
    RemoveRange(request.seq, static_cast<Pos>(request.tokens->size()), kToEnd);
  }
}

void LlamaDrafter::Accept(SeqId seq, int32_t n_accepted) {
  common_speculative_accept(speculative_.get(), seq, static_cast<uint16_t>(n_accepted));
}

void LlamaDrafter::ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) {
  if (memory_ != nullptr) ShareCells(draft_model_->context(), unified_, src, dst, p0, p1);
}

void LlamaDrafter::RemoveRange(SeqId seq, Pos p0, Pos p1) {
  if (memory_ != nullptr) llama_memory_seq_rm(memory_, seq, p0, p1);
}

void LlamaDrafter::ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) {
  if (memory_ == nullptr) return;
  if (llama_memory_can_shift(memory_)) {
    llama_memory_seq_add(memory_, seq, p0, p1, delta);
  } else {
    RemoveRange(seq, 0, kToEnd);
  }
}

void LlamaDrafter::Decode(const StepBatch& batch) {
  if (memory_ == nullptr) return;
  batch_.clear();
  for (const BatchToken& entry : batch) {
    const bool begins = batch_.size() == 0 || batch_.tokens.back().seq_id != entry.seq;
    if (begins) Align(entry.seq, entry.pos);
    batch_.add(entry.token, entry.pos, entry.seq, /*output=*/false);
  }
  if (common_speculative_process(speculative_.get(), batch_)) return;
  for (const BatchToken& entry : batch) RemoveRange(entry.seq, 0, kToEnd);
}

size_t LlamaDrafter::StateSize(SeqId seq) const {
  return memory_ == nullptr ? 0 : llama_state_seq_get_size(draft_model_->context(), seq);
}

void LlamaDrafter::SaveState(SeqId seq, std::span<uint8_t> bytes) const {
  const size_t n_bytes =
      llama_state_seq_get_data(draft_model_->context(), bytes.data(), bytes.size(), seq);
  POLYKV_CHECK(n_bytes == bytes.size());
}

void LlamaDrafter::LoadState(SeqId seq, std::span<const uint8_t> bytes) {
  if (memory_ == nullptr) return;
  RemoveRange(seq, 0, kToEnd);
  if (bytes.empty()) return;
  const size_t n_bytes =
      llama_state_seq_set_data(draft_model_->context(), bytes.data(), bytes.size(), seq);
  if (n_bytes == 0) RemoveRange(seq, 0, kToEnd);
}

void LlamaDrafter::Align(SeqId seq, Pos n_tokens) {
  if (memory_ == nullptr) return;
  if (llama_memory_seq_pos_max(memory_, seq) + 1 != n_tokens) RemoveRange(seq, 0, kToEnd);
}

std::span<const double> LlamaDrafter::synthetic_acceptance() const {
  return common_speculative_get_synth_probs(speculative_.get());
}

}  // namespace polykv
