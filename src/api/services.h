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
#include "api/wall_clock.h"
#include "base/clock.h"
#include "base/watchdog.h"
#include "engine/engine.h"
#include "events/event_log.h"

namespace polykv {

// What is told of the model while it is unloaded.
struct SleepingModel {
  std::string props;   // body of GET /props
  std::string models;  // body of GET /models
  bool endpoint_metrics = false;
  std::shared_ptr<const EngineSnapshot> snapshot;  // the last one
};

// Attention operations since the process began: by our kernel, and by ggml.
struct AttentionCounts {
  int64_t polykv = 0;
  int64_t ggml = 0;
};

// Constant from the moment the HTTP server is ready, except where said; what it points to outlives
// that server.
struct Services {
  ModelGate* gate = nullptr;
  StreamStore* streams = nullptr;
  const Clock* clock = nullptr;      // the engine's
  std::function<int64_t()> unix_ms;  // wall clock, for time stamps in answers only
  int64_t started_unix_s = 0;
  EventLog* events = nullptr;
  WallClock events_wall;     // of one moment: an event has the same time for all readers
  int64_t event_log_id = 0;  // tells logs apart
  const Watchdog* watchdog = nullptr;
  TimeUs tps_interval_us = 500'000;  // between two events of GET /polykv/tps
  AccessRules access;
  const ServerTools* tools = nullptr;                 // null: none are offered
  std::function<AttentionCounts()> attention_counts;  // any thread
  std::string polykv_limits;                          // body of GET /polykv/limits

  // Of the loaded model: for holders of the gate who found it loaded, and constant for them.
  Engine* engine = nullptr;
  const ServedModel* model = nullptr;
  std::function<std::string()> polykv_props;  // JSON object: opencoti.polykv of GET /props
  // Of the unloaded one: for those who found it unloaded.
  SleepingModel asleep;

  WallClock Wall() const { return {.unix_ms = unix_ms(), .now_us = clock->NowUs()}; }
  // The newest picture, or the last one of a model that sleeps; wakes nobody.
  std::shared_ptr<const EngineSnapshot> Snapshot() const {
    const ModelGate::Glance glance = gate->Look();
    return glance.loaded ? engine->Snapshot() : asleep.snapshot;
  }
};

}  // namespace polykv
