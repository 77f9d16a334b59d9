#include "api/cors.h"

#include <algorithm>
#include <string_view>

namespace polykv {
namespace {

// "host:port" or "[v6]:port" without the port and the brackets.
std::string_view WithoutPort(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? authority : authority.substr(1, end - 1);
  }
  return authority.substr(0, authority.find(':'));
}

// "scheme://authority" without the scheme; empty if it is no http origin.
std::string_view Authority(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  }
  return {};
}

bool IsListed(std::string_view list, std::string_view origin) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    while (entry.starts_with(' ')) entry.remove_prefix(1);
    while (entry.ends_with(' ')) entry.remove_suffix(1);
    if (entry == origin) return true;
  }
  return false;
}

bool IsLocalOrigin(std::string_view origin) {
  const std::string_view authority = Authority(origin);
  return !authority.empty() && IsLoopback(std::string(WithoutPort(authority)));
}

Problem Forbidden(std::string message) {
  return {.status = 403, .type = "permission_error", .message = std::move(message)};
}

}  // namespace

std::string AllowedOrigin(const std::string& allowed, bool credentials, const std::string& origin) {
  if (allowed == "*") return credentials ? origin : "*";
  if (allowed == "localhost") return IsLocalOrigin(origin) ? origin : "";
  if (allowed.find(',') == std::string::npos) return allowed;
  return IsListed(allowed, origin) ? origin : "";
}

std::optional<Problem> CheckOrigin(const AccessRules& rules, const std::string& host,
                                   const std::string& origin) {
  if (rules.loopback_only && !host.empty() && !IsLoopback(std::string(WithoutPort(host)))) {
    return Forbidden("Foreign Host header on a server of this machine only");
  }
  if (origin.empty() || (!host.empty() && Authority(origin) == host)) return std::nullopt;
  const std::string& allowed = rules.cors_origins;
  const bool ok = (allowed == "*" && rules.cors_origins_explicit) ||
                  (allowed == "localhost" && IsLocalOrigin(origin)) || IsListed(allowed, origin);
  if (ok) return std::nullopt;
  return Forbidden("Foreign Origin; allow it with --cors-origins");
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  const bool is_number = host.find_first_not_of("0123456789.") == std::string::npos;
  return is_number && host.starts_with("127.");  // 127.example.com may be anywhere
}

}  // namespace polykv
