#include "engine/steps/checkpoint.h"

namespace polykv {

void EnterStretch(EngineState& state, Generation& generation) {
  Sequence& sequence = *generation.sequence;
  if (sequence.n_tokens() < generation.stretch.end) return;
  const ModelInfo& info = state.backend->info();
  const bool goes_back = info.removes_ends && info.n_swa == 0;
  const bool wanted = !goes_back && generation.request->keeps_state;
  generation.stretch = PlanStretch(
      {.begin = sequence.n_tokens(),
       .n_prompt = generation.n_prompt(),
       .n_batch = info.n_batch,
       .n_ubatch = info.n_ubatch,
       .user_starts = generation.request->user_starts,
       .limits = wanted ? state.config.checkpoints : CheckpointLimits{},
       .last_checkpoint = sequence.checkpoints.empty() ? 0 : sequence.checkpoints.back().n_tokens});
  if (generation.stretch.checkpoint) {
    state.cache.AddCheckpoint(sequence, generation.task_id, state.config.checkpoints);
  }
}

}  // namespace polykv
