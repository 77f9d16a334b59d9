// Which slot a request gets.
#pragma once

#include "engine/state.h"

namespace polykv {

struct SlotChoice {
  Slot* slot = nullptr;     // null: none is free
  bool loses_much = false;  // of what it holds, so that the prompt cache should be looked into
};

// The free slot that holds most of the prompt if that is worth it, else the least recently used
// one; llama-server's choice, ties included. Sessions bring their own sequence and only need the
// seat. A request that names its slot gets that one or none.
SlotChoice ChooseSlot(EngineState& state, const Generation& generation);

}  // namespace polykv
