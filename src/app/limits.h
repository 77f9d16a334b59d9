// The document of GET /polykv/limits.
#pragma once

#include <string>

#include "api/http_server.h"
#include "app/options.h"
#include "engine/engine.h"
#include "kv/model_backend.h"

namespace polykv {

// Every limit as it is enforced, and every word that answers give as a reason; JSON.
std::string LimitsJson(const EngineConfig& engine, const Options& options,
                       const HttpServerConfig& http, const ModelInfo& model);

}  // namespace polykv
