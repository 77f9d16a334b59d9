#include "api/routes.h"

#include <string>

#include "api/problem.h"

namespace polykv {
namespace {

HttpHandler NotSupported(std::string message) {
  return [message = std::move(message)](const HttpRequest&) {
    return ProblemResponse({.status = 501, .type = "not_supported_error", .message = message});
  };
}

// llama-server's routes for what this server does not do, with its words.
void AddUnsupportedRoutes(HttpServer* server) {
  const HttpHandler audio = NotSupported("The current model does not support audio input.");
  for (const char* path : {"/v1/audio/transcriptions", "/audio/transcriptions"}) {
    server->Post(path, audio);
  }
}

}  // namespace

void AddRoutes(HttpServer* http, const Services* services) {
  ModelRoutes server(http, services);
  AddCompletionRoutes(&server, services);
  AddEmbeddingRoutes(&server, services);
  AddTextRoutes(&server, services);
  AddModelStatusRoutes(&server, services);
  AddSlotRoutes(&server, services);
  AddAdapterRoutes(&server, services);
  AddPoolRoutes(&server, services);
  AddAdmissionRoutes(&server, services);
  AddSessionRoutes(&server, services);
  AddControlRoutes(&server, services);
  AddStatusRoutes(http, services);
  AddListRoutes(http, services);
  AddMetricsRoutes(http, services);
  const auto seats = std::make_shared<StreamSeats>();
  AddTpsRoutes(http, services, seats);
  AddEventRoutes(http, services, seats);
  AddStreamRoutes(http, services);
  AddToolRoutes(http, services);
  AddUnsupportedRoutes(http);
}

}  // namespace polykv
