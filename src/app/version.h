// The version that /props and the banner show: CMake's, of project().
#pragma once

namespace polykv {

inline constexpr char kVersion[] = POLYKV_VERSION;

}  // namespace polykv
