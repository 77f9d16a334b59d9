// Which origins and hosts a browser may come from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace polykv {

// Value of Access-Control-Allow-Origin for a request from `origin` (empty: no header was sent);
// empty: no header. `allowed` is --cors-origins: "*", "localhost" or a comma-separated list.
std::string AllowedOrigin(const std::string& allowed, bool credentials, const std::string& origin);

// Who may change state through /polykv, beyond having a key: a web page somewhere must not.
struct AccessRules {
  bool loopback_only = true;  // every listener is bound to this machine
  std::string cors_origins = "*";
  bool cors_origins_explicit = false;  // "*" counts only when somebody asked for it
};

// A 403 if `host` (the Host header; empty: none) is a foreign name on a loopback listener, or if
// `origin` (empty: none) is neither the server's own nor allowed by the rules.
std::optional<Problem> CheckOrigin(const AccessRules& rules, const std::string& host,
                                   const std::string& origin);

// Whether `host`, a name or an address without brackets, is this machine as seen from itself.
bool IsLoopback(const std::string& host);

}  // namespace polykv
