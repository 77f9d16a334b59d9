// What a client may ask of a completion while it runs: to stop thinking.
#include "api/problem.h"
#include "api/protocol/json.h"
#include "api/routes.h"
#include "api/state_change.h"

namespace polykv {
namespace {

std::string TextField(const Json& body, const char* name) {
  const auto field = body.find(name);
  return field != body.end() && field->is_string() ? field->get<std::string>() : "";
}

Json OutcomeJson(EndReasoning::Outcome outcome) {
  switch (outcome) {
    case EndReasoning::Outcome::kNoCompletion:
      return {{"success", false}, {"message", "no active completion for this id"}};
    case EndReasoning::Outcome::kNotAsked:
      return {{"success", false}, {"message", "reasoning control not enabled for this completion"}};
    case EndReasoning::Outcome::kDone:
      break;
  }
  return {{"success", true}};
}

HttpResponse Control(const Services& services, const HttpRequest& request) {
  Result<Json> body = ParseJsonObject(request.body);
  if (!body.ok()) return ProblemResponse(body.problem());
  EndReasoning command = {.tenant = request.caller.tenant,
                          .completion_id = TextField(body.value(), "id")};
  if (command.completion_id.empty()) {
    return ProblemResponse(InvalidRequest("missing completion id"));
  }
  if (TextField(body.value(), "action") != "reasoning_end") {
    return ProblemResponse(InvalidRequest("unknown control action"));
  }
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  const auto outcome = Await(channel.get(), request);
  if (!outcome.has_value()) return {};
  if (!outcome->ok()) return ProblemResponse(outcome->problem());
  HttpResponse response;
  response.body = JsonText(OutcomeJson(outcome->value()));
  return response;
}

}  // namespace

void AddControlRoutes(ModelRoutes* server, const Services* services) {
  server->Post("/v1/chat/completions/control",
               [services](const HttpRequest& request) { return Control(*services, request); });
}

}  // namespace polykv
