#include "engine/steps/share.h"

#include <algorithm>

namespace polykv {

bool HasCells(const EngineState& state, SeqId seq) { return !state.cache.shares().Waits(seq); }

void GoOnSharing(EngineState& state) {
  const bool decoding =
      std::any_of(state.running.begin(), state.running.end(), [&](const auto& generation) {
        return generation->phase == Generation::Phase::kDecode &&
               HasCells(state, generation->sequence->id);
      });
  ShareQueue& shares = state.cache.shares();
  const TimeUs began = state.now();
  do {
    shares.DoPiece(state.config.share_piece);
  } while (!shares.empty() && (!decoding || state.now() - began < state.config.share_us));
}

}  // namespace polykv
