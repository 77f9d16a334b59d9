#pragma once

#include "base/types.h"
#include "kv/adapter_set.h"

namespace polykv {

// What cells were computed with, and for whom. A value: cells are reused, attached to and shared
// only where their origin is the same. What computes them looks at the adapters alone.
struct CellOrigin {
  AdapterSet adapters = {};
  TenantId tenant = kEverybody;

  bool operator==(const CellOrigin&) const = default;
};

}  // namespace polykv
