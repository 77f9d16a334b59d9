// DELETE /polykv/sessions.
#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/state_change.h"

namespace polykv {
namespace {

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
  server->Delete("/polykv/sessions",
                 [services](const HttpRequest& request) { return End(*services, request); });
}

}  // namespace polykv
