#include "api/problem.h"

#include <type_traits>
#include <variant>

namespace polykv {

void AddFacts(Json& json, const Facts& facts) {
  for (const auto& [name, fact] : facts) {
    json[name] = std::visit(
        [](const auto& value) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
            return nullptr;
          } else {
            return value;
          }
        },
        fact);
  }
}

namespace {

Json ErrorObject(const Problem& problem) {
  Json error = {{"code", problem.status}, {"message", problem.message}, {"type", problem.type}};
  if (problem.n_prompt_tokens.has_value()) error["n_prompt_tokens"] = *problem.n_prompt_tokens;
  if (problem.n_ctx.has_value()) error["n_ctx"] = *problem.n_ctx;
  if (problem.mismatch_pos.has_value()) error["mismatch_pos"] = *problem.mismatch_pos;
  AddFacts(error, problem.facts);
  return error;
}

}  // namespace

std::string ProblemJson(const Problem& problem) { return JsonText(ErrorObject(problem)); }

HttpResponse ProblemResponse(const Problem& problem) {
  HttpResponse response;
  response.status = problem.status;
  response.body = JsonText({{"error", ErrorObject(problem)}});
  if (problem.retry_after_s.has_value()) {
    response.headers["Retry-After"] = std::to_string(*problem.retry_after_s);
  }
  return response;
}

std::optional<Problem> CheckAdmin(const HttpRequest& request) {
  if (request.caller.is_admin) return std::nullopt;
  return Problem{.status = 401,
                 .type = "authentication_error",
                 .message = "This concerns every API key: it needs the one of --polykv-admin-key"};
}

}  // namespace polykv
