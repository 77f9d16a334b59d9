// Every route of the server, by group.
#pragma once

#include "api/http_server.h"
#include "api/services.h"

namespace polykv {

// Registers all of them. `services` may be filled in later, but before HttpServer::SetReady.
void AddRoutes(HttpServer* server, const Services* services);

// The groups.
void AddCompletionRoutes(HttpServer* server, const Services* services);
void AddTextRoutes(HttpServer* server, const Services* services);
void AddStatusRoutes(HttpServer* server, const Services* services);
void AddMetricsRoutes(HttpServer* server, const Services* services);
void AddPoolRoutes(HttpServer* server, const Services* services);
void AddSessionRoutes(HttpServer* server, const Services* services);
void AddStreamRoutes(HttpServer* server, const Services* services);
void AddToolRoutes(HttpServer* server, const Services* services);
void AddControlRoutes(HttpServer* server, const Services* services);

}  // namespace polykv
