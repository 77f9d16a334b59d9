// Every route of the server, by group.
#pragma once

#include <memory>

#include "api/http_server.h"
#include "api/model_routes.h"
#include "api/services.h"
#include "api/stream_seats.h"

namespace polykv {

// Registers all of them. `services` may be filled in later, but before HttpServer::SetReady.
void AddRoutes(HttpServer* http, const Services* services);

// The dashboard; not among them, because a server may be without it.
void AddDashboardRoutes(HttpServer* http);

// The groups.
void AddCompletionRoutes(ModelRoutes* server, const Services* services);
void AddEmbeddingRoutes(ModelRoutes* server, const Services* services);
void AddTextRoutes(ModelRoutes* server, const Services* services);
void AddModelStatusRoutes(ModelRoutes* server, const Services* services);
void AddSlotRoutes(ModelRoutes* server, const Services* services);
void AddAdapterRoutes(ModelRoutes* server, const Services* services);
void AddPoolRoutes(ModelRoutes* server, const Services* services);
void AddAdmissionRoutes(ModelRoutes* server, const Services* services);
void AddSessionRoutes(ModelRoutes* server, const Services* services);
void AddControlRoutes(ModelRoutes* server, const Services* services);
// These wake nobody.
void AddStatusRoutes(HttpServer* server, const Services* services);
void AddListRoutes(HttpServer* server, const Services* services);
void AddMetricsRoutes(HttpServer* server, const Services* services);
void AddTpsRoutes(HttpServer* server, const Services* services,
                  const std::shared_ptr<StreamSeats>& seats);
void AddEventRoutes(HttpServer* server, const Services* services,
                    const std::shared_ptr<StreamSeats>& seats);
void AddStreamRoutes(HttpServer* server, const Services* services);
void AddToolRoutes(HttpServer* server, const Services* services);

}  // namespace polykv
