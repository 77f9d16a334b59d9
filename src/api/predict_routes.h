// The prediction protocol of Google's Vertex AI: one route that carries requests for the others, as
// llama-server has it.
// https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "api/http_server.h"
#include "base/result.h"

namespace polykv {

struct PredictConfig {
  int port = 8080;  // whatever --port says
  std::string predict_path = "/predict";
  std::string health_path;  // empty: no further one
};

// What the variables AIP_* ask for; nothing unless AIP_MODE is PREDICTION. A Problem is one line
// for a person.
Result<std::optional<PredictConfig>> ReadPredictConfig(
    const std::function<const char*(const char* name)>& get_env);

// Registers them, after the routes to be reached by them. A Problem, one line for a person, if one
// of those has the same path.
std::optional<Problem> AddPredictRoutes(HttpServer* server, const PredictConfig& config);

// Name of a path in a prediction's "@requestFormat": "/v1/chat/completions" -> "chatCompletions".
std::string RequestFormat(const std::string& path);

}  // namespace polykv
