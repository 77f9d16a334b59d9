// Problem as an HTTP answer: {"error":{"code","message","type",…}} and its headers.
#pragma once

#include <optional>
#include <string>

#include "api/http_server.h"
#include "api/protocol/json.h"
#include "base/result.h"

namespace polykv {

// Adds the facts as fields.
void AddFacts(Json& json, const Facts& facts);

// The object under "error", as JSON text.
std::string ProblemJson(const Problem& problem);

// The whole answer, with Retry-After where the problem has one.
HttpResponse ProblemResponse(const Problem& problem);

// Of a request that concerns all tenants, why it is not for this caller: a 401.
std::optional<Problem> CheckAdmin(const HttpRequest& request);

}  // namespace polykv
