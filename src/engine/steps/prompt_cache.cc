#include "engine/steps/prompt_cache.h"

#include <utility>

namespace polykv {

void RefreshSlot(EngineState& state, Slot& slot, std::span<const Token> prompt,
                 const AdapterSet& adapters) {
  if (!state.host.on()) return;
  state.cache.Save(slot.own, state.host);
  const std::span<const Token> own = slot.own.adapters == adapters
                                         ? std::span<const Token>(slot.own.tokens)
                                         : std::span<const Token>();
  const SavedSequence* better = state.host.FindBetterOrNull(prompt, adapters, own);
  const int32_t n_cells = state.cache.free() + SequenceCache::SoleCells(slot.own);
  if (better != nullptr && static_cast<int32_t>(better->tokens.size()) <= n_cells) {
    state.cache.Load(slot.own, state.host.Take(better));
  }
  state.host.DropBeyondMaxTokens();
}

void SaveIdleSlots(EngineState& state) {
  if (!state.host.on() || !state.config.save_idle_slots) return;
  for (Slot& slot : state.slots) {
    if (slot.in_use()) continue;
    if (state.cache.Save(slot.own, state.host)) state.host.DropBeyondMaxTokens();
    if (!state.config.clear_idle_slots) continue;
    state.cache.Clear(slot.own);
    if (slot.running == nullptr) slot.last.n_tokens = 0;
  }
}

}  // namespace polykv
