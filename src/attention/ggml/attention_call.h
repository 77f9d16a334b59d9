// ggml's attention operation as a call of our kernels.
#pragma once

#include <optional>

#include "attention/call.h"
#include "ggml.h"

namespace polykv {

// nullopt for what the kernels do not compute: ALiBi, a soft cap, no mask or one per head, values
// that are stored transposed, several streams, head sizes and types that they do not have.
std::optional<AttentionCall> CallOf(const ggml_tensor& op);

}  // namespace polykv
