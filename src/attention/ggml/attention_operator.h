// Puts the attention kernels under ggml.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "attention/kernels.h"
#include "base/clock.h"

namespace polykv {

// The attention of all models of this process. Any thread may read it.
struct AttentionSwitch {
  std::atomic<bool> on{false};     // to be changed while nothing is computed
  std::atomic<int64_t> n_ours{0};  // operations that our kernel has computed
  std::atomic<int64_t> n_ggml{0};  // and those left to ggml: switched off, or of another shape
};

// From now on attention runs on our kernel while the switch is on. To be called before the first
// model is loaded; again, it says the same. The switch lives as long as the process; nullptr, and
// nothing is changed, where ggml has no place for it.
AttentionSwitch* InstallAttention();

// Both ways of computing operations of the first shape that was computed.
struct AttentionTrial {
  TimeUs ggml_us = 0;
  TimeUs ours_us = 0;
  float difference = 0;  // the greatest between the results; the values are between -1 and 1
};

// Computes both ways in turns, in some tens of milliseconds; leaves the switch and its counters as
// they were. nullopt if no attention that our kernel covers has been computed yet.
// REQUIRES: InstallAttention() has given a switch, and nothing else is computed meanwhile.
std::optional<AttentionTrial> TryAttention(int n_threads, const Clock& clock);

}  // namespace polykv
