// Streams on shared prefixes, decoded by ggml's attention and by ours in turns.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/ggml/attention_operator.h"
#include "base/clock.h"
#include "tree/models.h"

namespace polykv {

struct StreamShape {
  int32_t n_streams = 1;
  int32_t prefix = 0;    // cells that the streams of a group share
  int32_t own = 1;       // cells of each stream at the start
  int32_t n_groups = 1;  // streams next to each other; as many prefixes
  int32_t idle = 0;      // cells that no stream sees, below the others

  int32_t n_cells(int32_t n_steps) const {
    return idle + n_groups * prefix + n_streams * (own + n_steps);
  }
  int32_t n_sequences() const { return 1 + n_groups + n_streams; }
};

// Times in us, by ggml and by ours.
using BothUs = std::array<std::vector<double>, 2>;

class Streams {
 public:
  Streams(LlamaBackend* model, AttentionSwitch* attention, const StreamShape& shape);
  ~Streams();  // leaves an empty cache
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  BothUs Decode(int32_t n_steps);  // of each

 private:
  void Prefill(SeqId seq, int32_t first, int32_t n_tokens);
  double StepUs();

  LlamaBackend* const model_;
  AttentionSwitch* const attention_;
  const StreamShape shape_;
  SteadyClock clock_;
  int32_t length_;  // of each stream
};

// One prompt into an empty cache, `n_runs` times each.
BothUs PrefillTurns(LlamaBackend* model, AttentionSwitch* attention, int32_t n_tokens,
                    int32_t n_runs);

}  // namespace polykv
