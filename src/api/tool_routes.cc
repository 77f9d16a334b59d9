// llama-server's built-in tools, off unless asked for, and what stays off.
#include "api/problem.h"
#include "api/protocol/server_tools.h"
#include "api/routes.h"

namespace polykv {
namespace {

HttpResponse Disabled() {
  HttpResponse response;
  response.status = 403;
  response.body = R"({"error":{"message":"this feature is disabled","type":"feature_disabled"}})";
  return response;
}

HttpResponse ListTools(const Services& services) {
  if (services.tools == nullptr) return Disabled();
  HttpResponse response;
  response.body = services.tools->ListBody();
  return response;
}

// A tool runs commands: no web page but an allowed one may call it.
HttpResponse CallTool(const Services& services, const HttpRequest& request) {
  if (services.tools == nullptr) return Disabled();
  if (const std::optional<Problem> foreign =
          CheckOrigin(services.access, request.Header("host"), request.Header("origin"))) {
    return ProblemResponse(*foreign);
  }
  ServerTools::Answer answer =
      services.tools->Call(request.body, request.headers, request.should_stop);
  HttpResponse response;
  response.status = answer.status;
  response.content_type = std::move(answer.content_type);
  response.body = std::move(answer.body);
  response.next = std::move(answer.next);
  return response;
}

}  // namespace

void AddToolRoutes(HttpServer* server, const Services* services) {
  server->Get("/tools", [services](const HttpRequest&) { return ListTools(*services); });
  server->Post("/tools",
               [services](const HttpRequest& request) { return CallTool(*services, request); });
  const auto disabled = [](const HttpRequest&) { return Disabled(); };
  server->Get("/cors-proxy", disabled);
  server->Post("/cors-proxy", disabled);
}

}  // namespace polykv
