#include "llama/llama_backend.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "llama/cell_share.h"
#include "llama/llama_load.h"
#include "llama/memory_internals.h"
#include "llama/parallel.h"
#include "llama/sharing_trial.h"
#include "llama/slot_file.h"
#include "log.h"

namespace polykv {
namespace {

llama_state_seq_flags StateFlags(StateParts parts) {
  return parts == StateParts::kAll ? LLAMA_STATE_SEQ_FLAGS_NONE
                                   : LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
}

}  // namespace

LlamaBackend::LlamaBackend(common_params params, common_init_result_ptr loaded)
    : params_(std::move(params)),
      loaded_(std::move(loaded)),
      model_(loaded_->model()),
      context_(loaded_->context()),
      memory_(llama_get_memory(context_)),
      vocab_(llama_model_get_vocab(model_)),
      info_(DescribeModel(model_, context_, params_)),
      batch_(llama_batch_ext_init(context_)) {
  // Asked between two operations whether to give up: never.
  const auto count = [](void* n_operations) {
    static_cast<std::atomic<uint64_t>*>(n_operations)->fetch_add(1, std::memory_order_relaxed);
    return false;
  };
  llama_set_abort_callback(context_, count, &n_operations_);
}

// On a thread that ends: OpenMP keeps the helpers of a thread that computed as long as it lives,
// and once all helpers together outnumber the cores, none of them spins between two operations any
// more. Each of the hundreds in a decode would then wait for a thread to wake up.
Result<std::unique_ptr<LlamaBackend>> LlamaBackend::Load(common_params params, int32_t n_seq_max,
                                                         bool test_sharing) {
  return std::async(std::launch::async, &LlamaBackend::LoadHere, std::move(params), n_seq_max,
                    test_sharing)
      .get();
}

Result<std::unique_ptr<LlamaBackend>> LlamaBackend::LoadHere(common_params params,
                                                             int32_t n_seq_max, bool test_sharing) {
  Result<common_init_result_ptr> loaded = LoadModel(&params, n_seq_max);
  if (!loaded.ok()) return loaded.problem();
  std::unique_ptr<LlamaBackend> backend(
      new LlamaBackend(std::move(params), std::move(loaded.value())));
  POLYKV_CHECK(backend->info_.n_seq_max == n_seq_max);
  if (backend->info_.generates) backend->ProbeMemory();
  if (backend->params_.ctx_shift && !backend->info_.can_shift) {
    LOG_WRN("%s: this model's memory cannot shift: --context-shift has no effect\n", __func__);
    backend->params_.ctx_shift = false;
  }
  if (std::optional<Problem> problem = backend->LoadDrafter()) return *std::move(problem);
  if (test_sharing && backend->info_.sharing != Sharing::kOff) backend->TestSharing();
  return backend;
}

void LlamaBackend::TestSharing() {
  if (!SharesCorrectly(*this, info_.sharing)) {
    LOG_WRN("%s: shared cells do not go on as computed ones: no sharing\n", __func__);
    info_.sharing = Sharing::kOff;
    info_.sharing_reason = "self_test";
  }
  llama_memory_clear(memory_, /*data=*/false);
  llama_perf_context_reset(context_);
}

// Measures what one more cell costs and whether it can be taken back, with two tokens that are
// cleared afterwards (llama-server probes its context in the same way before the first request).
void LlamaBackend::ProbeMemory() {
  // Before the K and V of a cell libllama writes its position, the number of its sequences and the
  // one sequence (llama-kv-cache.cpp, state_write_meta); once more for the layers with a window.
  const std::vector<MemoryUse> uses = MemoryUses();
  const auto n_caches = static_cast<size_t>(std::count_if(
      uses.begin(), uses.end(), [](const MemoryUse& use) { return use.name != "recurrent"; }));
  const size_t cell_header =
      std::max<size_t>(1, n_caches) * (sizeof(llama_pos) + sizeof(uint32_t) + sizeof(llama_seq_id));
  const auto state_size_after = [this](Pos pos) {
    const DecodeStatus status = Decode({{.token = 0, .pos = pos, .seq = 0, .output = true}});
    POLYKV_CHECK(status == DecodeStatus::kOk);
    return llama_state_seq_get_size(context_, 0);
  };
  const size_t one_cell = state_size_after(0);
  const size_t two_cells = state_size_after(1);
  if (two_cells > one_cell + cell_header) {
    info_.bytes_per_cell = static_cast<int64_t>(two_cells - one_cell - cell_header);
  }
  info_.removes_ends = RemoveRange(0, 1, kToEnd);
  info_.can_shift = info_.can_shift && info_.removes_ends;
  llama_memory_clear(memory_, /*data=*/true);
  llama_synchronize(context_);
  llama_perf_context_reset(context_);
}

std::optional<Problem> LlamaBackend::LoadDrafter() {
  common_params params = params_;
  params.n_parallel = info_.n_seq_max;
  Result<std::unique_ptr<LlamaDrafter>> drafter =
      LlamaDrafter::Load(params, model_, context_, info_);
  if (!drafter.ok()) return drafter.problem();
  drafter_ = std::move(drafter.value());
  return std::nullopt;
}

std::span<const float> LlamaBackend::Logits(int32_t output_index) const {
  const float* logits = llama_get_logits_ith(context_, output_index);
  POLYKV_CHECK(logits != nullptr);
  return {logits, static_cast<size_t>(info_.n_vocab)};
}

void LlamaBackend::ShareRange(SeqId src, SeqId dst, Pos p0, Pos p1) {
  POLYKV_CHECK(info_.sharing != Sharing::kOff);
  POLYKV_CHECK(src >= 0 && src < info_.n_seq_max);
  POLYKV_CHECK(dst >= 0 && dst < info_.n_seq_max);
  POLYKV_CHECK(src != dst);
  POLYKV_CHECK(p0 >= 0 && (p1 == kToEnd || p1 >= p0));
  POLYKV_CHECK(ShareCells(context_, info_.unified, src, dst, p0, p1));
  if (drafter_ != nullptr) drafter_->ShareRange(src, dst, p0, p1);
}

void LlamaBackend::CloneSequence(SeqId src, SeqId dst) {
  POLYKV_CHECK(src >= 0 && src < info_.n_seq_max);
  POLYKV_CHECK(dst >= 0 && dst < info_.n_seq_max && src != dst);
  CloneCells(context_, info_.unified, src, dst);
  if (drafter_ != nullptr) drafter_->ShareRange(src, dst, 0, kToEnd);
}

bool LlamaBackend::RemoveRange(SeqId seq, Pos p0, Pos p1) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  POLYKV_CHECK(p0 >= 0 && (p1 == kToEnd || p1 >= p0));
  if (!RemoveCells(context_, seq, p0, p1)) return false;
  if (drafter_ != nullptr) drafter_->RemoveRange(seq, p0, p1);
  return true;
}

void LlamaBackend::ShiftPositions(SeqId seq, Pos p0, Pos p1, Pos delta) {
  POLYKV_CHECK(info_.can_shift);
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  POLYKV_CHECK(p0 >= 0 && (p1 == kToEnd || p1 >= p0));
  llama_memory_seq_add(memory_, seq, p0, p1, delta);
  if (drafter_ != nullptr) drafter_->ShiftPositions(seq, p0, p1, delta);
}

Pos LlamaBackend::MinPos(SeqId seq) const {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  return llama_memory_seq_pos_min(memory_, seq);
}

int32_t LlamaBackend::HighestCell() const { return polykv::HighestCell(memory_); }

std::vector<MemoryUse> LlamaBackend::MemoryUses() const { return polykv::MemoryUses(memory_); }

bool LlamaBackend::HasDraftState(StateParts parts) const {
  return drafter_ != nullptr && parts == StateParts::kAll;
}

size_t LlamaBackend::StateSize(SeqId seq, StateParts parts) const {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  size_t n_bytes = llama_state_seq_get_size_ext(context_, seq, StateFlags(parts));
  if (HasDraftState(parts)) n_bytes += drafter_->StateSize(seq);
  return n_bytes;
}

void LlamaBackend::SaveState(SeqId seq, StateParts parts, std::span<uint8_t> bytes) const {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  const size_t n_draft = HasDraftState(parts) ? drafter_->StateSize(seq) : 0;
  const size_t n_bytes = llama_state_seq_get_data_ext(
      context_, bytes.data(), bytes.size() - n_draft, seq, StateFlags(parts));
  POLYKV_CHECK(n_bytes == bytes.size() - n_draft);
  if (n_draft > 0) drafter_->SaveState(seq, bytes.last(n_draft));
}

bool LlamaBackend::LoadState(SeqId seq, StateParts parts, std::span<const uint8_t> bytes) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  const size_t n_bytes =
      llama_state_seq_set_data_ext(context_, bytes.data(), bytes.size(), seq, StateFlags(parts));
  if (HasDraftState(parts)) {
    drafter_->LoadState(seq, bytes.last(n_bytes > 0 ? bytes.size() - n_bytes : 0));
  }
  return n_bytes > 0;
}

Result<int64_t> LlamaBackend::SaveSequence(SeqId seq, std::span<const Token> tokens,
                                           const std::string& path) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  const std::vector<Token> packed = PackTokens(tokens);
  const size_t n_bytes =
      llama_state_seq_save_file(context_, path.c_str(), seq, packed.data(), packed.size());
  if (n_bytes > 0) return static_cast<int64_t>(n_bytes);
  return Problem{
      .status = 500, .type = "server_error", .message = "cannot write the file '" + path + "'"};
}

Result<std::vector<Token>> LlamaBackend::ReadSavedTokens(const std::string& path) const {
  return ReadTokensOfSlotFile(path, info_.n_vocab);
}

Result<int64_t> LlamaBackend::LoadSequence(SeqId seq, int32_t n_tokens, const std::string& path) {
  POLYKV_CHECK(seq >= 0 && seq < info_.n_seq_max);
  // libllama's own reader of such files aborts on one that is cut short, and it empties the
  // sequence before it looks at what it is to hold. So the state goes through memory, where it
  // begins with a magic number and a sequence id (llama-context.cpp, state_seq_get_data).
  constexpr size_t kStatePrefix = sizeof(uint32_t) + sizeof(llama_seq_id);
  std::vector<uint8_t> before(llama_state_seq_get_size(context_, seq));
  const size_t n_before = llama_state_seq_get_data(context_, before.data(), before.size(), seq);
  POLYKV_CHECK(n_before == before.size() && n_before >= kStatePrefix);
  std::vector<uint8_t> state = ReadStateOfSlotFile(path, kStatePrefix);
  if (!state.empty()) {
    std::copy_n(before.begin(), kStatePrefix, state.begin());
    const size_t n_read = llama_state_seq_set_data(context_, state.data(), state.size(), seq);
    if (n_read == state.size() && llama_memory_seq_pos_max(memory_, seq) == n_tokens - 1) {
      if (drafter_ != nullptr) drafter_->RemoveRange(seq, 0, kToEnd);  // of the text before
      std::error_code ignored;
      return static_cast<int64_t>(std::filesystem::file_size(path, ignored));
    }
    RemoveRange(seq, 0, kToEnd);
    POLYKV_CHECK(llama_state_seq_set_data(context_, before.data(), before.size(), seq) == n_before);
  }
  return InvalidRequest("No available space in KV cache or invalid slot save file");
}

void LlamaBackend::UseAdapters(const AdapterSet& adapters) {
  std::vector<llama_adapter_lora*> loaded;
  std::vector<float> scales;
  for (const auto& [id, scale] : adapters.scales()) {
    POLYKV_CHECK(id < info_.n_adapters);
    loaded.push_back(params_.lora_adapters[static_cast<size_t>(id)].ptr);
    scales.push_back(scale);
  }
  llama_set_adapters_lora(context_, loaded.data(), loaded.size(), scales.data());
}

DecodeStatus LlamaBackend::Decode(const StepBatch& batch) {
  POLYKV_CHECK(info_.generates);
  llama_set_embeddings(context_, false);
  return Compute(batch, /*all_are_outputs=*/false);
}

DecodeStatus LlamaBackend::Embed(const StepBatch& batch) {
  POLYKV_CHECK(params_.embedding && batch.size() <= static_cast<size_t>(info_.n_ubatch));
  llama_set_embeddings(context_, true);
  return Compute(batch, /*all_are_outputs=*/true);
}

std::vector<float> LlamaBackend::Vector(SeqId seq, int32_t output_index) const {
  const float* vector = info_.pooled ? llama_get_embeddings_seq(context_, seq)
                                     : llama_get_embeddings_ith(context_, output_index);
  if (vector == nullptr) return {};
  const bool is_rank = llama_pooling_type(context_) == LLAMA_POOLING_TYPE_RANK;
  const auto size = is_rank ? static_cast<int32_t>(llama_model_n_cls_out(model_))
                            : llama_model_n_embd_out(model_);
  return {vector, vector + size};
}

DecodeStatus LlamaBackend::Compute(const StepBatch& batch, bool all_are_outputs) {
  POLYKV_CHECK(!batch.empty() && batch.size() <= static_cast<size_t>(info_.n_batch));
  llama_batch_ext_clear(batch_.get());
  bool has_output = false;
  for (const BatchToken& entry : batch) {
    const int32_t index = llama_batch_ext_add_token(batch_.get(), entry.seq, entry.token);
    POLYKV_CHECK(index >= 0);  // token in the vocabulary, sequence below n_seq_max
    llama_batch_ext_set_pos(batch_.get(), index, &entry.pos);
    const bool is_output = entry.output || all_are_outputs;
    llama_batch_ext_set_output_logits(batch_.get(), index, is_output);
    has_output |= is_output;
  }
  const int32_t code = llama_process(context_, LLAMA_PROCESS_TYPE_DECODE, batch_.get());
  if (code == 1) return DecodeStatus::kNoRoom;
  if (code != 0) {
    if (code != -1) RemoveBatch(batch);  // -1: refused before anything was written
    return DecodeStatus::kFailed;
  }
  if (drafter_ != nullptr) drafter_->Decode(batch);
  if (has_output) llama_synchronize(context_);
  return DecodeStatus::kOk;
}

// After a failure libllama keeps the micro-batches that were computed before it.
void LlamaBackend::RemoveBatch(const StepBatch& batch) {
  for (const BatchToken& entry : batch) {
    const bool removed = RemoveRange(entry.seq, entry.pos, kToEnd);
    if (!removed) RemoveRange(entry.seq, 0, kToEnd);
  }
}

// libllama's own threads, which wait for the next decode, take the jobs. What they call in the
// context was settled by the decode: it only writes again what is there.
void LlamaBackend::Sample(std::span<SampleJob> jobs) {
  constexpr size_t kManyJobs = 4;  // fewer plain ones are done before another thread is awake
  in_order_.clear();
  for (SampleJob& job : jobs) in_order_.push_back(&job);
  const auto first_plain = std::stable_partition(
      in_order_.begin(), in_order_.end(), [](SampleJob* job) { return job->sampler->is_slow(); });
  const bool worth_it =
      jobs.size() >= kManyJobs || (jobs.size() > 1 && first_plain != in_order_.begin());
  Logits(jobs.front().output_index);
  const int n_threads = worth_it ? params_.cpuparams.n_threads : 1;
  ForEachInParallel(in_order_.size(), n_threads, [this](size_t i) { in_order_[i]->Run(); });
}

bool LlamaBackend::IsEndOfGeneration(Token token) const {
  return llama_vocab_is_eog(vocab_, token);
}

std::string LlamaBackend::TokenText(Token token, bool special) const {
  return common_token_to_piece(vocab_, token, special);
}

std::vector<Token> LlamaBackend::Tokenize(std::string_view text, bool add_special,
                                          bool parse_special) const {
  return common_tokenize(vocab_, std::string(text), add_special, parse_special);
}

}  // namespace polykv
