// What the routes work with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/cors.h"
#include "api/model_gate.h"
#include "api/protocol/served_model.h"
#include "api/protocol/server_tools.h"
#include "api/stream_store.h"
#include "base/clock.h"
#include "engine/engine.h"

namespace polykv {

// What is told of the model while it is unloaded.
struct SleepingModel {
  std::string props;   // body of GET /props
  std::string models;  // body of GET /models
  bool endpoint_metrics = false;
  std::shared_ptr<const EngineSnapshot> snapshot;  // the last one
};

// Constant from the moment the HTTP server is ready, except where said; what it points to outlives
// that server.
struct Services {
  ModelGate* gate = nullptr;
  StreamStore* streams = nullptr;
  const Clock* clock = nullptr;      // the engine's
  std::function<int64_t()> unix_ms;  // wall clock, for time stamps in answers only
  int64_t started_unix_s = 0;
  TimeUs tps_interval_us = 500'000;  // between two events of GET /polykv/tps
  AccessRules access;
  const ServerTools* tools = nullptr;  // null: none are offered

  // Of the loaded model: for holders of the gate who found it loaded, and constant for them.
  Engine* engine = nullptr;
  const ServedModel* model = nullptr;
  std::string polykv_props = "{}";  // JSON object: opencoti.polykv of GET /props
  // Of the unloaded one: for those who found it unloaded.
  SleepingModel asleep;
};

}  // namespace polykv
