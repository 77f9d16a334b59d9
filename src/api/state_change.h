// What every /polykv request that changes something goes through.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "api/http_server.h"
#include "api/problem.h"
#include "api/protocol/json.h"
#include "api/services.h"
#include "base/channel.h"
#include "base/result.h"

namespace polykv {

// The body of such a request: its origin is allowed, it is JSON by its Content-Type (without a
// body there may be none, and the body counts as {}), and it has no field but `fields`.
Result<Json> ReadStateChange(const AccessRules& rules, const HttpRequest& request,
                             const std::vector<std::string_view>& fields);

// Typed fields of such a body; nothing if absent or null, a 400 that names the field if it is
// something else.
Result<std::optional<bool>> BoolField(const Json& body, const char* name);
Result<std::optional<std::string>> StringField(const Json& body, const char* name);
Result<std::optional<int64_t>> CountField(const Json& body, const char* name);  // 0 to 2^53

// Waits for the answer to any command; nothing if the client has gone, and then the engine knows.
template <typename T>
std::optional<Result<T>> Await(Channel<Result<T>>* channel, const HttpRequest& request) {
  while (!request.should_stop()) {
    if (auto answer = channel->Next(std::chrono::milliseconds(100))) return answer;
  }
  channel->Cancel();
  return std::nullopt;
}

}  // namespace polykv
