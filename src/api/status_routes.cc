// Health, properties, models, slots: answered from the model and the engine's snapshot alone, or
// from what is told of a model that sleeps.
#include <algorithm>

#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/views.h"

namespace polykv {
namespace {

Problem NotSupported(std::string message) {
  return {.status = 501, .type = "not_supported_error", .message = std::move(message)};
}

bool IsDraining(const Services& services) {
  const ModelGate::Glance glance = services.gate->Look();
  return glance.loaded && services.engine->Snapshot()->draining;
}

HttpResponse Health(const Services& services, const HttpRequest& request) {
  if (services.watchdog->stalled()) {
    return ProblemResponse({.status = 503,
                            .type = "unavailable_error",
                            .message = "The model has work and does not get on with it",
                            .retry_after_s = 5});
  }
  if (!request.Param("ready").empty() && IsDraining(services)) {
    return ProblemResponse({.status = 503,
                            .type = "unavailable_error",
                            .message = "The server is shutting down",
                            .retry_after_s = 1});
  }
  return JsonTextResponse(R"({"status":"ok"})");
}

HttpResponse Slots(const Services& services, const HttpRequest& request) {
  if (!services.model->endpoint_slots()) {
    return ProblemResponse(
        NotSupported("This server does not support slots endpoint. Start it with `--slots`"));
  }
  const auto snapshot = services.engine->Snapshot();
  const bool has_idle = std::any_of(snapshot->slots.begin(), snapshot->slots.end(),
                                    [](const SlotView& slot) { return !slot.is_processing; });
  if (!request.Param("fail_on_no_slot").empty() && !has_idle) {
    return ProblemResponse(
        {.status = 503, .type = "unavailable_error", .message = "no slot available"});
  }
  const TimeUs now = services.clock->NowUs();
  Json slots = Json::array();
  for (const SlotView& slot : snapshot->slots) {
    slots.push_back(SlotJson(request.caller.Sees(slot.tenant) ? slot : Redacted(slot), now));
  }
  return JsonResponse(slots);
}

HttpResponse ChangeProps(const Services& services, const HttpRequest& request) {
  if (const auto refused = CheckAdmin(request)) return ProblemResponse(*refused);
  if (services.model->endpoint_props()) return JsonTextResponse(R"({"success":true})");
  return ProblemResponse(NotSupported(
      "This server does not support changing global properties. Start it with `--props`"));
}

HttpResponse Props(const Services& services) {
  const ModelGate::Glance glance = services.gate->Look();
  return JsonTextResponse(
      glance.loaded ? services.model->PropsBody(services.polykv_props(), /*is_sleeping=*/false)
                    : services.asleep.props);
}

HttpResponse Models(const Services& services) {
  const ModelGate::Glance glance = services.gate->Look();
  return JsonTextResponse(glance.loaded ? services.model->ModelsBody(services.unix_ms() / 1000)
                                        : services.asleep.models);
}

}  // namespace

void AddStatusRoutes(HttpServer* server, const Services* services) {
  for (const char* path : {"/health", "/v1/health"}) {
    server->Get(path,
                [services](const HttpRequest& request) { return Health(*services, request); });
  }
  for (const char* path : {"/models", "/v1/models"}) {
    server->Get(path, [services](const HttpRequest&) { return Models(*services); });
  }
  server->Get("/props", [services](const HttpRequest&) { return Props(*services); });
  server->Get("/polykv/limits",
              [services](const HttpRequest&) { return JsonTextResponse(services->polykv_limits); });
}

void AddModelStatusRoutes(ModelRoutes* server, const Services* services) {
  server->Post("/props",
               [services](const HttpRequest& request) { return ChangeProps(*services, request); });
  server->Get("/slots",
              [services](const HttpRequest& request) { return Slots(*services, request); });
}

}  // namespace polykv
