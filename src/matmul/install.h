// Puts our products under ggml.
#pragma once

namespace polykv {

// From now on every product of Q4_1 weights with plain activations in this process runs on
// MultiplyQ41, with the same bits as before; anything else is ggml's as ever. Returns false, and
// changes nothing, on a processor that cannot, or if a trial product differs from ggml's by a bit.
// To be called before the first model is loaded; again, it says the same.
bool InstallMatmul();

}  // namespace polykv
