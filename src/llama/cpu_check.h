// Whether this machine's processor can run what llama.cpp was compiled for.
#pragma once

#include <string>

namespace polykv {

// Names of the instruction sets that the build uses and this processor lacks, separated by commas;
// empty if it has all of them.
std::string MissingCpuFeatures();

}  // namespace polykv
