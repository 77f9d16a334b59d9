#include "engine/steps/slot_change.h"

#include "engine/steps/pressure.h"

namespace polykv {
namespace {

Problem CannotRestore(const std::string& why) {
  return InvalidRequest("Unable to restore slot: " + why);
}

// Cells for `n_tokens` in place of what the slot holds. False if running requests need them.
bool MakeRoomInSlot(EngineState& state, const Slot& slot, int32_t n_tokens) {
  const int32_t needed = n_tokens - SequenceCache::SoleCells(slot.own);
  const int32_t available =
      state.cache.free() - ReservedCells(state) + ReclaimableCells(state, &slot.own, nullptr);
  if (needed > available) return false;
  while (state.cache.free() < needed && ReclaimOnce(state, &slot.own, nullptr)) {
  }
  return state.cache.free() >= needed;
}

Result<SlotChanged> Save(EngineState& state, const Slot& slot, const std::string& path) {
  ModelBackend& model = state.cache.shares().Settled(slot.own.id);
  const Result<int64_t> n_bytes = model.SaveSequence(slot.own.id, slot.own.tokens, path);
  if (!n_bytes.ok()) {
    return Problem{.status = 500, .type = "server_error", .message = "Unable to save slot"};
  }
  return SlotChanged{.n_tokens = slot.own.n_tokens(), .n_bytes = n_bytes.value()};
}

Result<SlotChanged> Restore(EngineState& state, Slot& slot, const std::string& path,
                            TenantId tenant) {
  Result<std::vector<Token>> tokens = state.backend->ReadSavedTokens(path);
  if (!tokens.ok()) return CannotRestore(tokens.problem().message);
  const auto n_tokens = static_cast<int32_t>(tokens.value().size());
  if (n_tokens > state.config.n_ctx_plain) {
    return CannotRestore("Restored prompt does not fit in the slot context");
  }
  if (!MakeRoomInSlot(state, slot, n_tokens)) {
    return CannotRestore("No available space in KV cache or invalid slot save file");
  }
  const Result<int64_t> n_bytes = state.cache.LoadFile(slot.own, std::move(tokens.value()), path);
  if (!n_bytes.ok()) return CannotRestore(n_bytes.problem().message);
  slot.own.origin = {state.adapters, tenant};  // of the adapters the file does not say
  return SlotChanged{.n_tokens = n_tokens, .n_bytes = n_bytes.value()};
}

SlotChanged Erase(EngineState& state, Slot& slot) {
  const int32_t n_tokens = slot.own.n_tokens();
  state.cache.Clear(slot.own);
  return {.n_tokens = n_tokens};
}

// What the slot holds is not for the tenant to see: nothing, or another's.
bool IsHidden(const Slot& slot, TenantId tenant) {
  const bool is_empty = slot.own.tokens.empty();
  return tenant != kEverybody && (is_empty || slot.own.origin.tenant != tenant);
}

Result<SlotChanged> Carry(EngineState& state, Slot& slot, const ChangeSlot& change) {
  if (change.action != ChangeSlot::Action::kRestore && IsHidden(slot, change.tenant)) {
    return Problem{.status = 404,
                   .type = "not_found_error",
                   .message = "slot " + std::to_string(slot.id) + " holds nothing of this API key"};
  }
  switch (change.action) {
    case ChangeSlot::Action::kSave:
      return Save(state, slot, change.path);
    case ChangeSlot::Action::kRestore:
      return Restore(state, slot, change.path, change.tenant);
    case ChangeSlot::Action::kErase:
      break;
  }
  return Erase(state, slot);
}

}  // namespace

void ChangeFreeSlots(EngineState& state) {
  std::erase_if(state.slot_changes,
                [](const ChangeSlot& change) { return change.channel->cancelled(); });
  for (auto it = state.slot_changes.begin(); it != state.slot_changes.end();) {
    Slot& slot = state.slots[static_cast<size_t>(it->id_slot) % state.slots.size()];
    if (slot.running != nullptr) {
      ++it;
      continue;
    }
    const TimeUs began = state.now();
    Result<SlotChanged> answer = Carry(state, slot, *it);
    if (answer.ok()) answer.value().ms = static_cast<double>(state.now() - began) / 1e3;
    state.Answer(it->channel, std::move(answer));
    state.changed = true;
    it = state.slot_changes.erase(it);
  }
}

}  // namespace polykv
