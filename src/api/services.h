// What the routes work with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api/cors.h"
#include "api/protocol/served_model.h"
#include "api/protocol/server_tools.h"
#include "api/stream_store.h"
#include "base/clock.h"
#include "engine/engine.h"

namespace polykv {

// Constant from the moment the HTTP server is ready; what it points to outlives that server.
struct Services {
  Engine* engine = nullptr;
  const ServedModel* model = nullptr;
  StreamStore* streams = nullptr;
  const Clock* clock = nullptr;      // the engine's
  std::function<int64_t()> unix_ms;  // wall clock, for time stamps in answers only
  int64_t started_unix_s = 0;
  std::string polykv_props = "{}";  // JSON object: opencoti.polykv of GET /props
  AccessRules access;
  const ServerTools* tools = nullptr;  // null: none are offered
};

}  // namespace polykv
