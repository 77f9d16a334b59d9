// Where a prompt is cut for checkpoints, which ones are kept, and what a sequence can go on from.
// Pure. Source: llama-server's rules (tools/server/server-context.cpp, update_slots and
// create_checkpoint), so that the same requests reuse the same number of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/types.h"
#include "session/checkpoint.h"

namespace polykv {

struct CheckpointLimits {
  int32_t max_count = 0;  // per sequence; 0: no checkpoints
  int32_t min_step = 0;   // tokens between two of them, except at the end of a prompt
};

// A part of a prompt that is computed as if it were one batch: no micro-batch crosses its ends.
struct Stretch {
  Pos begin = 0;
  Pos end = 0;              // begin == end: none yet
  bool checkpoint = false;  // one is due at `begin`, before the stretch is computed
};

struct StretchInput {
  Pos begin = 0;
  int32_t n_prompt = 0;  // > begin
  int32_t n_batch = 0;
  int32_t n_ubatch = 0;
  std::span<const Pos> user_starts;  // of the prompt's user messages, ascending
  CheckpointLimits limits;           // max_count 0 where the model needs none
  Pos last_checkpoint = 0;           // n_tokens of the newest one; 0: there is none
};

Stretch PlanStretch(const StretchInput& input);

// Drops what a new checkpoint at `n_tokens` makes superfluous, or must give way to it.
void MakeRoomForCheckpoint(std::vector<Checkpoint>& checkpoints, const CheckpointLimits& limits,
                           int64_t task_id, Pos n_tokens);

// What remains of a sequence for a prompt that begins with its first tokens.
struct ResumePoint {
  Pos n_tokens = 0;                       // that are kept
  std::optional<size_t> checkpoint = {};  // index of the one to load first; none: nothing to load
  Pos valid_until = -1;                   // checkpoints whose last position is beyond it are stale
};

struct ResumeInput {
  Pos n_common = 0;            // leading tokens that are equal, > 0
  bool has_new_tokens = true;  // the prompt goes on after them
  Pos min_pos = 0;             // lowest position that the memory has cells for
  int32_t n_swa = 0;           // ModelInfo::n_swa
};

ResumePoint FindResumePoint(std::span<const Checkpoint> checkpoints, const ResumeInput& input);

}  // namespace polykv
