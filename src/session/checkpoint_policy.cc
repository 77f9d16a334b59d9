#include "session/checkpoint_policy.h"

#include <algorithm>

namespace polykv {
namespace {

constexpr int32_t kTail = 4;  // tokens of the prompt's end that are computed after the last cut

bool FarFromLast(const StretchInput& input, Pos pos) {
  return input.last_checkpoint == 0 || pos > input.last_checkpoint + input.limits.min_step;
}

Pos LastUserStart(const StretchInput& input) {
  return input.user_starts.empty() ? -1 : input.user_starts.back();
}

bool IsUserStart(const StretchInput& input, Pos pos) {
  return std::binary_search(input.user_starts.begin(), input.user_starts.end(), pos);
}

// The first cut after `begin`, `end` if there is none before it.
Pos FirstCut(const StretchInput& input, Pos end) {
  for (const Pos pos : input.user_starts) {
    const bool cut = pos == LastUserStart(input) || FarFromLast(input, pos);
    if (pos > input.begin && cut) end = std::min(end, pos);
  }
  for (const int32_t offset : {kTail + input.n_ubatch, kTail}) {
    const Pos pos = input.n_prompt - std::min(input.n_batch, offset);
    if (pos > input.begin) end = std::min(end, pos);
  }
  return end;
}

}  // namespace

Stretch PlanStretch(const StretchInput& input) {
  const Pos full = std::min(input.begin + input.n_batch, input.n_prompt);
  if (input.limits.max_count <= 0) return {input.begin, full};
  Stretch stretch{input.begin, FirstCut(input, full)};
  const bool near_end = input.n_prompt < stretch.end + input.n_ubatch;
  const bool wanted = near_end || IsUserStart(input, input.begin);
  stretch.checkpoint =
      input.begin > 0 && wanted &&
      (near_end || input.begin == LastUserStart(input) || FarFromLast(input, input.begin));
  return stretch;
}

void MakeRoomForCheckpoint(std::vector<Checkpoint>& checkpoints, const CheckpointLimits& limits,
                           int64_t task_id, Pos n_tokens) {
  const auto max_count = static_cast<size_t>(limits.max_count);
  Pos last = -1;
  for (auto it = checkpoints.begin();
       it != checkpoints.end() && checkpoints.size() + 1 >= max_count;) {
    const bool close = last >= 0 && it->n_tokens <= last + limits.min_step;
    if (close && it->task_id != task_id) {
      it = checkpoints.erase(it);
    } else {
      last = it->n_tokens;
      ++it;
    }
  }
  if (checkpoints.size() >= max_count) {
    const size_t n_over = checkpoints.size() - max_count + 1;
    checkpoints.erase(checkpoints.begin(),
                      checkpoints.begin() + static_cast<std::ptrdiff_t>(n_over));
  }
  std::erase_if(checkpoints, [=](const Checkpoint& old) { return old.n_tokens == n_tokens; });
}

ResumePoint FindResumePoint(std::span<const Checkpoint> checkpoints, const ResumeInput& input) {
  const Pos threshold = std::max(0, input.n_common - input.n_swa - (input.has_new_tokens ? 0 : 1));
  if (input.min_pos < threshold) {
    return {.n_tokens = input.n_common, .valid_until = input.n_common};
  }
  for (size_t i = checkpoints.size(); i-- > 0;) {
    const Checkpoint& checkpoint = checkpoints[i];
    const bool reaches_back = checkpoint.min_pos < threshold || checkpoint.min_pos == 0;
    if (checkpoint.last_pos() > input.n_common || !reaches_back) continue;
    const Pos next =
        std::min(input.n_common, std::max(checkpoint.min_pos + 1, checkpoint.last_pos()));
    return {.n_tokens = std::min(next, checkpoint.n_tokens), .checkpoint = i, .valid_until = next};
  }
  return {.valid_until = 0};
}

}  // namespace polykv
