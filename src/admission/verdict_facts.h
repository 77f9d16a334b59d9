// A verdict in the names that it has on the wire.
#pragma once

#include "admission/judge.h"
#include "base/result.h"

namespace polykv {

Facts VerdictFacts(const Verdict& verdict);

}  // namespace polykv
