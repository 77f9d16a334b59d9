#include "engine/steps/prompt_cache.h"

#include <string>
#include <utility>

namespace polykv {
namespace {

// llama-server's own tests look for these in its log.
constexpr char kUpdating[] = "updating prompt cache";
constexpr char kIdleSlotSaved[] = "__TEST_TAG_CACHE_IDLE_SLOT__";

// Into the prompt cache, if what the slot holds is not there already and fits. False: nothing new.
bool Save(EngineState& state, const Slot& slot) {
  const Sequence& own = slot.own;
  if (own.tokens.empty() || state.host.Holds(own.tokens, own.origin)) return false;
  return state.cache.Save(own, [&state](SavedSequence saved, size_t state_size) {
    return state.host.AddPromptOrNull(std::move(saved), state_size);
  });
}

std::string OfSlot(const Slot& slot) { return " of slot " + std::to_string(slot.id); }

}  // namespace

void RefreshSlot(EngineState& state, Slot& slot, std::span<const Token> prompt,
                 const CellOrigin& origin) {
  if (!state.host.on()) return;
  state.Log(kUpdating + (" with the tokens" + OfSlot(slot)));
  Save(state, slot);
  const std::span<const Token> own = slot.own.origin == origin
                                         ? std::span<const Token>(slot.own.tokens)
                                         : std::span<const Token>();
  const SavedSequence* better = state.host.FindBetterOrNull(prompt, origin, own);
  const int32_t n_cells = state.cache.free() + SequenceCache::SoleCells(slot.own);
  if (better != nullptr && static_cast<int32_t>(better->tokens.size()) <= n_cells) {
    state.cache.Load(slot.own, state.host.Take(better));
  }
  state.host.DropPromptsBeyondMaxTokens();
}

void SaveIdleSlots(EngineState& state) {
  if (!state.host.on() || !state.config.save_idle_slots) return;
  for (Slot& slot : state.slots) {
    if (slot.in_use()) continue;
    if (Save(state, slot)) {
      state.Log("saved the tokens" + OfSlot(slot) + ", which is idle: " + kIdleSlotSaved);
      state.host.DropPromptsBeyondMaxTokens();
    }
    if (!state.config.clear_idle_slots) continue;
    state.cache.Clear(slot.own);
    if (slot.running == nullptr) slot.last.n_tokens = 0;
  }
}

}  // namespace polykv
