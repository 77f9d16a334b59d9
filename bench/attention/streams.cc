#include "attention/streams.h"

#include "base/check.h"

namespace polykv {
namespace {

constexpr int32_t kBatch = 2'048;

// Tokens that differ, so that no two positions are alike.
Token TokenAt(SeqId seq, Pos pos) { return 1'000 + (seq * 7'919 + pos * 104'729) % 30'000; }

void PrefillRange(LlamaBackend* model, SeqId seq, Pos first, Pos last) {
  for (Pos pos = first; pos < last;) {
    StepBatch batch;
    for (; pos < last && batch.size() < kBatch; ++pos) {
      batch.push_back({TokenAt(seq, pos), pos, seq, /*output=*/false});
    }
    batch.back().output = true;
    POLYKV_CHECK(model->Decode(batch) == DecodeStatus::kOk);
  }
}

}  // namespace

Streams::Streams(LlamaBackend* model, AttentionSwitch* attention, const StreamShape& shape)
    : model_(model), attention_(attention), shape_(shape), length_(shape.prefix + shape.own) {
  attention_->on = true;
  const SeqId idle = shape_.n_streams + shape_.n_groups;
  Prefill(idle, 0, shape_.idle);
  for (int32_t group = 0; group < shape_.n_groups; ++group) {
    Prefill(shape_.n_streams + group, 0, shape_.prefix);
  }
  for (SeqId seq = 0; seq < shape_.n_streams; ++seq) {
    const SeqId prefix = shape_.n_streams + seq * shape_.n_groups / shape_.n_streams;
    if (shape_.prefix > 0) model_->ShareRange(prefix, seq, 0, shape_.prefix);
    Prefill(seq, shape_.prefix, 1);
  }
  // One cell of each stream after the other, as decoding leaves them.
  for (Pos pos = shape_.prefix + 1; pos < length_; ++pos) {
    StepBatch batch;
    for (SeqId seq = 0; seq < shape_.n_streams; ++seq) {
      batch.push_back({TokenAt(seq, pos), pos, seq, /*output=*/seq == 0});
    }
    POLYKV_CHECK(model_->Decode(batch) == DecodeStatus::kOk);
  }
}

Streams::~Streams() {
  for (SeqId seq = 0; seq < shape_.n_sequences(); ++seq) model_->RemoveRange(seq, 0, kToEnd);
}

void Streams::Prefill(SeqId seq, int32_t first, int32_t n_tokens) {
  PrefillRange(model_, seq, first, first + n_tokens);
}

double Streams::StepUs() {
  StepBatch batch;
  for (SeqId seq = 0; seq < shape_.n_streams; ++seq) {
    batch.push_back({TokenAt(seq, length_), length_, seq, /*output=*/true});
  }
  ++length_;
  const TimeUs begin = clock_.NowUs();
  POLYKV_CHECK(model_->Decode(batch) == DecodeStatus::kOk);
  return static_cast<double>(clock_.NowUs() - begin);
}

BothUs Streams::Decode(int32_t n_steps) {
  BothUs us;
  for (int32_t step = -1; step < n_steps; ++step) {
    for (const bool ours : {step % 2 == 0, step % 2 != 0}) {
      attention_->on = ours;
      const double step_us = StepUs();
      if (step >= 0) us[ours ? 1 : 0].push_back(step_us);  // the first pair warms up
    }
  }
  return us;
}

BothUs PrefillTurns(LlamaBackend* model, AttentionSwitch* attention, int32_t n_tokens,
                    int32_t n_runs) {
  const SteadyClock clock;
  BothUs us;
  for (int32_t run = 0; run < n_runs; ++run) {
    for (const bool ours : {run % 2 == 0, run % 2 != 0}) {
      attention->on = ours;
      const TimeUs begin = clock.NowUs();
      PrefillRange(model, 0, 0, n_tokens);
      us[ours ? 1 : 0].push_back(static_cast<double>(clock.NowUs() - begin));
      model->RemoveRange(0, 0, kToEnd);
    }
  }
  return us;
}

}  // namespace polykv
