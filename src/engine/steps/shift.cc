#include "engine/steps/shift.h"

#include "engine/context_shift.h"

namespace polykv {

bool ContextFull(const Generation& generation, int32_t n_tokens) {
  return n_tokens + 1 >= generation.n_ctx;
}

bool MayShift(EngineState& state, const Generation& generation) {
  if (!state.config.context_shift || generation.session != nullptr) return false;
  state.cache.TakeBack(*generation.sequence);
  return generation.sequence->lease.length() == 0;
}

void ShiftFullContexts(EngineState& state) {
  if (!state.config.context_shift) return;
  for (const auto& generation : state.running) {
    if (generation->phase != Generation::Phase::kDecode) continue;
    const GenerationRequest& request = *generation->request;
    Sequence& sequence = *generation->sequence;
    if (!ContextFull(*generation, sequence.n_tokens()) || !MayShift(state, *generation)) continue;
    const ShiftRange range =
        PlanShift(sequence.n_tokens(), generation->n_ctx, request.n_keep, request.n_discard);
    state.cache.Shift(sequence, range.p0, range.p1);
    generation->shifted = true;
  }
}

}  // namespace polykv
