// The version that /props and the banner show; CMakeLists.txt has the same.
#pragma once

namespace polykv {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace polykv
