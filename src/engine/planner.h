// Which prompt tokens the next step computes. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/types.h"

namespace polykv {

// A prompt or a pool that still has tokens to compute.
struct PrefillJob {
  int32_t n_left = 0;  // tokens still to compute, > 0
  int32_t n_done = 0;  // tokens computed for this job so far, without cached ones
  TimeUs since = 0;    // waiting since
  int32_t n_to_stop = std::numeric_limits<int32_t>::max();  // tokens up to where a step must end
};

struct PrefillLimits {
  int32_t n_decoding = 0;   // decode tokens that are in the step already
  int32_t n_batch = 0;      // most tokens in a step
  int32_t n_ubatch = 0;     // tokens that the model computes together
  int32_t chunk = 0;        // most prompt tokens in a step while somebody decodes
  double us_per_token = 0;  // measured cost of a prompt token
  TimeUs now = 0;
};

struct PrefillShare {
  size_t job;        // index into the jobs
  int32_t n_tokens;  // > 0
};

// Fewest tokens left first (shortest job first keeps the mean wait low); a job that has waited
// three times its solo time comes before all others, oldest first, so that none takes longer than
// about four times it. While nothing decodes and one prompt is there, its chunks end where
// llama-server's would: at multiples of n_ubatch between one stop and the next.
std::vector<PrefillShare> PlanPrefill(std::span<const PrefillJob> jobs,
                                      const PrefillLimits& limits);

}  // namespace polykv
