#include "tree/filled_backend.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {

FilledBackend::FilledBackend(ModelBackend* inner, const Clock* clock, Computes computes)
    : inner_(inner), clock_(clock), computes_(computes), info_(inner->info()) {
  POLYKV_CHECK(info_.unified && info_.can_shift && info_.sharing == Sharing::kAnyPosition);
  scratch_ = --info_.n_seq_max;
}

const std::vector<uint8_t>& FilledBackend::StateOf(int32_t n_tokens) {
  std::vector<uint8_t>& state = states_[n_tokens];
  if (!state.empty()) return state;
  for (Pos pos = 0; pos < n_tokens;) {
    StepBatch batch;
    const Pos end = std::min(n_tokens, pos + info_.n_batch);
    for (; pos < end; ++pos) batch.push_back({.token = 100, .pos = pos, .seq = scratch_});
    POLYKV_CHECK(inner_->Decode(batch) == DecodeStatus::kOk);
  }
  state.resize(inner_->StateSize(scratch_, StateParts::kAll));
  inner_->SaveState(scratch_, StateParts::kAll, state);
  inner_->RemoveRange(scratch_, 0, kToEnd);
  return state;
}

bool FilledBackend::Fill(SeqId seq, Pos begin, int32_t n_cells) {
  while (n_cells > 0) {
    const int32_t n = std::min(n_cells, kBlock);
    if (!inner_->LoadState(scratch_, StateParts::kAll, StateOf(n))) return false;
    if (begin > 0) inner_->ShiftPositions(scratch_, 0, kToEnd, begin);
    inner_->ShareRange(scratch_, seq, begin, begin + n);
    inner_->RemoveRange(scratch_, 0, kToEnd);
    begin += n;
    n_cells -= n;
  }
  return true;
}

DecodeStatus FilledBackend::FillBatch(const StepBatch& batch) {
  for (size_t i = 0; i < batch.size();) {
    size_t end = i + 1;
    while (end < batch.size() && batch[end].seq == batch[i].seq) ++end;
    if (!Fill(batch[i].seq, batch[i].pos, static_cast<int32_t>(end - i))) {
      return DecodeStatus::kNoRoom;
    }
    i = end;
  }
  return DecodeStatus::kOk;
}

DecodeStatus FilledBackend::Decode(const StepBatch& batch) {
  began_at_ = clock_->NowUs();
  const bool has_output =
      std::any_of(batch.begin(), batch.end(), [](const BatchToken& token) { return token.output; });
  const bool computed = has_output && computes_ == Computes::kOutputs;
  const DecodeStatus status = computed ? inner_->Decode(batch) : FillBatch(batch);
  ended_at_ = clock_->NowUs();
  return status;
}

void FilledBackend::Sample(std::span<SampleJob> jobs) {
  if (computes_ == Computes::kOutputs) return inner_->Sample(jobs);
  for (SampleJob& job : jobs) job.Run();
}

}  // namespace polykv
