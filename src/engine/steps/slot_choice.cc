#include "engine/steps/slot_choice.h"

#include "pool/prefix.h"

namespace polykv {
namespace {

float Similarity(const Slot& slot, const Generation& generation) {
  if (slot.own.origin.tenant != generation.request->tenant) return 0;
  return static_cast<float>(LongestCommonPrefix(slot.own.tokens, generation.request->prompt)) /
         static_cast<float>(generation.n_prompt());
}

// Whether the slot, `similarity` of whose prompt it holds, would lose more than half of its tokens.
bool LosesMuch(const Slot& slot, const Generation& generation, float similarity) {
  const float kept = similarity * static_cast<float>(generation.n_prompt()) /
                     static_cast<float>(slot.own.n_tokens());
  return kept < 0.5F;
}

SlotChoice ChosenById(EngineState& state, const Generation& generation) {
  const auto index = static_cast<size_t>(generation.request->id_slot) % state.slots.size();
  Slot& slot = state.slots[index];
  if (slot.running != nullptr) return {};
  const float threshold = state.config.slot_prompt_similarity;
  if (threshold == 0 || slot.own.tokens.empty()) return {&slot};
  const float similarity = Similarity(slot, generation);
  return {&slot, LosesMuch(slot, generation, similarity > threshold ? similarity : 0)};
}

}  // namespace

SlotChoice ChooseSlot(EngineState& state, const Generation& generation) {
  if (generation.request->id_slot >= 0) return ChosenById(state, generation);
  const auto free = [](const Slot& slot) { return slot.running == nullptr; };
  Slot* best = nullptr;
  if (generation.session == nullptr && state.config.slot_prompt_similarity > 0) {
    float best_similarity = state.config.slot_prompt_similarity;
    for (Slot& slot : state.slots) {
      if (!free(slot) || slot.own.tokens.empty()) continue;
      const float similarity = Similarity(slot, generation);
      if (similarity > best_similarity) {
        best_similarity = similarity;
        best = &slot;
      }
    }
    if (best != nullptr) return {best, LosesMuch(*best, generation, best_similarity)};
  }
  for (Slot& slot : state.slots) {
    if (free(slot) && (best == nullptr || slot.last_used <= best->last_used)) best = &slot;
  }
  return {best, /*loses_much=*/true};
}

}  // namespace polykv
