#include "engine/steps/move_down.h"

namespace polykv {
namespace {

constexpr int32_t kManyHoles = 2'048;  // cells; passing over them costs a stream 5 % of a step

}  // namespace

void MoveOneStreamDown(EngineState& state) {
  const int32_t n_holes = state.backend->HighestCell() - state.cache.used();
  if (n_holes < kManyHoles) {
    for (const auto& generation : state.running) generation->n_holes_moved = 0;
    return;
  }
  for (const auto& generation : state.running) {
    if (generation->phase != Generation::Phase::kDecode) continue;
    Sequence& sequence = *generation->sequence;
    if (sequence.n_private() == 0 || state.cache.shares().Waits(sequence.id)) continue;
    if (n_holes < generation->n_holes_moved + kManyHoles) continue;
    generation->n_holes_moved = n_holes;  // if it does not help, not again
    if (state.cache.MoveDown(sequence)) return;
  }
}

}  // namespace polykv
