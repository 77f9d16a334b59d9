#include "tree/idle_cells.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "tree/median.h"
#include "tree/models.h"
#include "tree/report.h"

namespace polykv {
namespace {

constexpr int32_t kBlock = 2'048;  // cells of an idle sequence
constexpr int32_t kPrompt = 64;    // of a stream
constexpr int32_t kSpare = 8'192;  // cells for the streams
constexpr Token kToken = 100;

// Sequences [0, n_streams) decode, those behind them idle.
class Cache {
 public:
  Cache(const std::string& model_path, const IdleCellsPlan& plan, bool flash_attention)
      : n_streams_(*std::max_element(plan.streams.begin(), plan.streams.end())) {
    const int32_t n_cells = *std::max_element(plan.cells.begin(), plan.cells.end());
    n_seq_ = n_streams_ + n_cells / kBlock + 1;
    model_ = LoadModelOrExit({.path = model_path,
                              .n_ctx = n_cells + kSpare,
                              .n_seq_max = n_seq_,
                              .flash_attention = flash_attention});
    Prefill(n_streams_, kBlock);
    state_.resize(model_->StateSize(n_streams_, StateParts::kAll));
    model_->SaveState(n_streams_, StateParts::kAll, state_);
    model_->RemoveRange(n_streams_, 0, kToEnd);
    lengths_.resize(static_cast<size_t>(n_streams_));
  }

  void AddIdle(int32_t n_cells) {
    for (; n_idle_ < n_cells / kBlock; ++n_idle_) {
      POLYKV_CHECK(model_->LoadState(n_streams_ + n_idle_, StateParts::kAll, state_));
    }
  }
  // What steps/idle_tier does with idle sessions.
  void DropIdle() {
    for (; n_idle_ > 0; --n_idle_) {
      const SeqId seq = n_streams_ + n_idle_ - 1;
      model_->SaveState(seq, StateParts::kAll, state_);
      model_->RemoveRange(seq, 0, kToEnd);
    }
  }

  void StartStreams() {
    for (SeqId seq = 0; seq < n_streams_; ++seq) {
      Prefill(seq, kPrompt);
      lengths_[static_cast<size_t>(seq)] = kPrompt;
    }
  }
  // What steps/move_down does with the streams in the steps after that.
  void MoveStreams() {
    for (SeqId seq = 0; seq < n_streams_; ++seq) {
      std::vector<uint8_t> state(model_->StateSize(seq, StateParts::kAll));
      model_->SaveState(seq, StateParts::kAll, state);
      model_->RemoveRange(seq, 0, kToEnd);
      POLYKV_CHECK(model_->LoadState(seq, StateParts::kAll, state));
    }
  }
  // As long as they were at the start.
  void TrimStreams() {
    for (SeqId seq = 0; seq < n_streams_; ++seq) {
      model_->RemoveRange(seq, kPrompt, kToEnd);
      lengths_[static_cast<size_t>(seq)] = kPrompt;
    }
  }
  double DecodeUs(int32_t n_streams, int32_t n_steps) {
    std::vector<double> us;
    for (int32_t step = 0; step < n_steps; ++step) {
      StepBatch batch;
      for (SeqId seq = 0; seq < n_streams; ++seq) {
        batch.push_back({kToken, lengths_[static_cast<size_t>(seq)]++, seq, /*output=*/true});
      }
      const TimeUs begin = clock_.NowUs();
      POLYKV_CHECK(model_->Decode(batch) == DecodeStatus::kOk);
      us.push_back(static_cast<double>(clock_.NowUs() - begin));
    }
    return Median(us);
  }

 private:
  void Prefill(SeqId seq, int32_t n_tokens) {
    StepBatch batch;
    for (Pos pos = 0; pos < n_tokens; ++pos) batch.push_back({kToken, pos, seq, false});
    batch.back().output = true;
    POLYKV_CHECK(model_->Decode(batch) == DecodeStatus::kOk);
  }

  const int32_t n_streams_;
  int32_t n_seq_ = 0;
  int32_t n_idle_ = 0;
  SteadyClock clock_;
  std::unique_ptr<LlamaBackend> model_;
  std::vector<uint8_t> state_;  // of an idle sequence
  std::vector<Pos> lengths_;    // of the streams
};

}  // namespace

void MeasureIdleCells(const std::string& model_path, const IdleCellsPlan& plan) {
  for (const bool flash_attention : {true, false}) {
    Cache cache(model_path, plan, flash_attention);
    const auto report = [&](const char* what, int32_t n_cells) {
      for (const int32_t n_streams : plan.streams) {
        Row("idle")
            .Add("flash_attention", flash_attention ? "on" : "off")
            .Add("when", what)
            .Add("cells", n_cells)
            .Add("streams", n_streams)
            .Add("us", cache.DecodeUs(n_streams, plan.steps));
      }
    };
    cache.StartStreams();
    cache.DecodeUs(1, plan.steps);  // to warm up
    for (const int32_t n_cells : plan.cells) {
      Say("flash attention %s, %d idle cells", flash_attention ? "on" : "off", n_cells);
      cache.AddIdle(n_cells);
      report("beside", n_cells);
    }
    cache.DropIdle();
    report("in host memory", 0);
    cache.MoveStreams();
    cache.TrimStreams();
    report("streams moved down", 0);
  }
}

}  // namespace polykv
