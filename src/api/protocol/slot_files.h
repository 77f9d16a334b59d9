// POST /slots/:id_slot on the wire.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/commands.h"

namespace polykv {

// The "filename" of a request to save or restore: a plain name, without a way out of its folder.
Result<std::string> SlotFilename(const std::string& body);

// The answers. `id_slot` and `filename` are the request's.
std::string SlotSavedBody(int32_t id_slot, const std::string& filename, const SlotChanged& saved);
std::string SlotRestoredBody(int32_t id_slot, const std::string& filename,
                             const SlotChanged& restored);
std::string SlotErasedBody(int32_t id_slot, const SlotChanged& erased);

}  // namespace polykv
