// GET and POST /lora-adapters.
#include "api/json_response.h"
#include "api/problem.h"
#include "api/protocol/lora_adapters.h"
#include "api/routes.h"
#include "api/state_change.h"

namespace polykv {
namespace {

HttpResponse Apply(const Services& services, const HttpRequest& request) {
  if (const auto refused = CheckAdmin(request)) return ProblemResponse(*refused);
  Result<AdapterSet> adapters = ParseLoraAdapters(*services.model, request.body);
  if (!adapters.ok()) return ProblemResponse(adapters.problem());
  SetAdapters command = {.adapters = std::move(adapters.value())};
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  const auto answer = Await(channel.get(), request);
  if (!answer.has_value()) return {};
  return answer->ok() ? JsonTextResponse(LoraAppliedBody()) : ProblemResponse(answer->problem());
}

}  // namespace

void AddAdapterRoutes(ModelRoutes* server, const Services* services) {
  server->Get("/lora-adapters", [services](const HttpRequest&) {
    return JsonTextResponse(
        LoraAdaptersBody(*services->model, services->engine->Snapshot()->adapters));
  });
  server->Post("/lora-adapters",
               [services](const HttpRequest& request) { return Apply(*services, request); });
}

}  // namespace polykv
