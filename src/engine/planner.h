// Which prompt tokens the next step computes. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "meter/step_cost.h"

namespace polykv {

// A prompt or a pool that still has tokens to compute.
struct PrefillJob {
  int32_t n_left = 0;  // tokens still to compute, > 0
  int32_t n_done = 0;  // tokens computed for this job so far, without cached ones
  TimeUs since = 0;    // waiting since
  int32_t n_to_stop = std::numeric_limits<int32_t>::max();  // tokens up to where a step must end
  Pos begin = 0;                                            // position of the next one
  bool outside = false;                                     // of every policy, where there is one
};

// What a step may take while streams with a floor decode.
struct StepRoom {
  TimeUs now = 0;        // so that no stream falls under its floor
  TimeUs full = 0;       // the same if every stream were as far ahead of its floor as counts
  TimeUs owed = 0;       // what prefill may take in any case
  StepShape decode;      // what is in the step already
  bool may_wait = true;  // false: without prompt tokens there would be no step
  StepCost cost = {};
  double margin = 1;  // factor by which steps with a prompt hardly exceed their cost
};

// Keeps count of a tenth of the engine's time, which prefill is to have whatever floors there are.
class PrefillDues {
 public:
  // While prompt tokens wait: a step took `step`, of it `prefill` for prompt tokens.
  void Add(TimeUs step, TimeUs prefill);
  void Reset() { owed_ = 0; }  // none waits
  TimeUs owed() const { return owed_; }

 private:
  TimeUs owed_ = 0;  // >= 0
};

struct PrefillLimits {
  int32_t n_decoding = 0;   // decode tokens that are in the step already
  int32_t n_batch = 0;      // most tokens in a step
  int32_t n_ubatch = 0;     // tokens that the model computes together
  int32_t chunk = 0;        // most prompt tokens in a step while somebody decodes
  double us_per_token = 0;  // measured cost of a prompt token
  TimeUs now = 0;
  std::optional<StepRoom> room = {};  // none: nobody with a floor decodes
};

struct PrefillShare {
  size_t job;        // index into the jobs
  int32_t n_tokens;  // > 0
};

// The chunk of `ordered` jobs for a step with that room, of at most `budget` tokens, as PlanPrefill
// chooses it; 0: none in this step.
int32_t ChunkWithin(const StepRoom& room, std::span<const PrefillJob> ordered, int32_t budget);

// Fewest tokens left first (shortest job first keeps the mean wait low); a job that has waited
// three times its solo time comes before all others, oldest first, so that none takes longer than
// about four times it. Jobs outside of every policy come last, until they have waited ten times as
// long as others may. While nothing decodes and one prompt is there, its chunks end where
// llama-server's would: at multiples of n_ubatch between one stop and the next. While somebody with
// a floor decodes, a chunk is the largest multiple of 16 that fits into the room, if at least 16
// do; steps without one follow each other until that is most of what fits into full room, since
// small chunks are dear. What prefill is owed it gets all the same.
std::vector<PrefillShare> PlanPrefill(std::span<const PrefillJob> jobs,
                                      const PrefillLimits& limits);

}  // namespace polykv
