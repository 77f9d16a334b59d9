// Problem as an HTTP answer: {"error":{"code","message","type",…}} and its headers.
#pragma once

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

}  // namespace polykv
