// GET and DELETE /polykv/sessions.
#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/state_change.h"
#include "api/views.h"

namespace polykv {
namespace {

HttpResponse ListSessions(const Services& services, const HttpRequest& request) {
  const auto snapshot = services.engine->Snapshot();
  const WallClock wall = services.Wall();
  const std::string wanted = request.Param("session_id");
  Json sessions = Json::array();
  for (const SessionView& session : snapshot->sessions) {
    const bool is_meant = wanted.empty() || session.session_id == wanted;
    if (is_meant && request.caller.Sees(session.tenant)) {
      sessions.push_back(SessionJson(session, wall));
    }
  }
  if (!wanted.empty() && sessions.empty()) {
    return ProblemResponse(
        {.status = 404, .type = "session_not_found", .message = "No such session"});
  }
  return JsonResponse({{"boot_id", snapshot->boot_id},
                       {"n_sessions", sessions.size()},
                       {"sessions", std::move(sessions)}});
}

HttpResponse End(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(services.access, request, {});
  if (!body.ok()) return ProblemResponse(body.problem());
  EndSessions command = {.tenant = request.caller.tenant,
                         .session_id = request.Param("session_id")};
  if (command.session_id.empty() && !request.IsSet("all")) {
    return ProblemResponse(InvalidRequest("Say which: ?session_id=S, or ?all=1 for every session"));
  }
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  const auto ended = Await(channel.get(), request);
  if (!ended.has_value()) return {};
  if (!ended->ok()) return ProblemResponse(ended->problem());
  return JsonResponse({{"ended", ended->value()}});
}

}  // namespace

void AddSessionRoutes(ModelRoutes* server, const Services* services) {
  server->Get("/polykv/sessions",
              [services](const HttpRequest& request) { return ListSessions(*services, request); });
  server->Delete("/polykv/sessions",
                 [services](const HttpRequest& request) { return End(*services, request); });
}

}  // namespace polykv
