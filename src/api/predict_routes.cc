#include "api/predict_routes.h"

#include <cctype>
#include <charconv>
#include <future>
#include <string_view>
#include <utility>
#include <vector>

#include "api/problem.h"
#include "api/protocol/json.h"

namespace polykv {
namespace {

constexpr size_t kMaxInstances = 128;  // each with a thread
constexpr const char* kFormatField = "@requestFormat";

using Handlers = std::map<std::string, HttpHandler>;

Json ErrorPrediction(const Problem& problem) { return Json::parse(ProblemResponse(problem).body); }

Json Prediction(const HttpResponse& response) {
  if (response.next) {
    return ErrorPrediction(InvalidRequest("predict route does not support streaming responses"));
  }
  if (response.body.empty()) return nullptr;
  Json body = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  return body.is_discarded() ? Json(response.body) : body;
}

Json Predict(const Handlers& handlers, const HttpRequest& request, Json instance) {
  if (!instance.is_object()) {
    return ErrorPrediction(InvalidRequest("each instance must be a JSON object"));
  }
  const auto format = instance.find(kFormatField);
  if (format == instance.end() || !format->is_string()) {
    return ErrorPrediction(InvalidRequest("each instance must include a string @requestFormat"));
  }
  const auto name = format->get<std::string>();
  const auto handler = handlers.find(name);
  if (handler == handlers.end()) {
    return ErrorPrediction(InvalidRequest("no handler registered for @requestFormat: " + name));
  }
  instance.erase(kFormatField);
  if (instance.contains("stream")) instance["stream"] = false;
  HttpRequest inner = request;
  inner.body = JsonText(instance);
  return Prediction(handler->second(inner));
}

HttpResponse PredictAll(const Handlers& handlers, const HttpRequest& request) {
  Result<Json> body = ParseJsonObject(request.body);
  if (!body.ok()) return ProblemResponse(body.problem());
  const auto instances = body.value().find("instances");
  if (instances == body.value().end() || !instances->is_array()) {
    return ProblemResponse(
        InvalidRequest("request body must include an array field named instances"));
  }
  if (instances->size() > kMaxInstances) {
    return ProblemResponse(
        InvalidRequest("instances array exceeds maximum size of " + std::to_string(kMaxInstances)));
  }
  std::vector<std::future<Json>> pending;
  for (const Json& instance : *instances) {
    pending.push_back(std::async(std::launch::async, [&handlers, &request, instance] {
      return Predict(handlers, request, instance);
    }));
  }
  Json predictions = Json::array();
  for (std::future<Json>& prediction : pending) predictions.push_back(prediction.get());
  HttpResponse response;
  response.body = JsonText({{"predictions", std::move(predictions)}});
  return response;
}

// The handlers by path and by format. Of two paths with the same format, that under /v1 has it.
Handlers ByFormat(const Handlers& by_path) {
  Handlers handlers = by_path;
  for (const auto& [path, handler] : by_path) {
    if (path.starts_with("/v1/")) handlers.emplace(RequestFormat(path), handler);
  }
  for (const auto& [path, handler] : by_path) handlers.emplace(RequestFormat(path), handler);
  return handlers;
}

std::string RoutePath(const char* text, const std::string& otherwise) {
  if (text == nullptr || *text == '\0') return otherwise;
  return *text == '/' ? text : "/" + std::string(text);
}

}  // namespace

Result<std::optional<PredictConfig>> ReadPredictConfig(
    const std::function<const char*(const char* name)>& get_env) {
  const char* mode = get_env("AIP_MODE");
  if (mode == nullptr || std::string_view(mode) != "PREDICTION") {
    return std::optional<PredictConfig>();
  }
  PredictConfig config;
  config.predict_path = RoutePath(get_env("AIP_PREDICT_ROUTE"), config.predict_path);
  config.health_path = RoutePath(get_env("AIP_HEALTH_ROUTE"), config.health_path);
  const char* port = get_env("AIP_HTTP_PORT");
  if (port == nullptr || *port == '\0') return std::optional(config);
  const std::string_view text = port;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), config.port);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Problem{.message = "AIP_HTTP_PORT is no port: " + std::string(text)};
  }
  return std::optional(config);
}

std::optional<Problem> AddPredictRoutes(HttpServer* server, const PredictConfig& config) {
  const Handlers& by_path = server->handlers();
  if (by_path.contains(config.predict_path)) {
    return Problem{.message = "AIP_PREDICT_ROUTE=" + config.predict_path +
                              " conflicts with a route of the server"};
  }
  const Handlers handlers = ByFormat(by_path);
  if (!config.health_path.empty()) server->Get(config.health_path, by_path.at("/health"));
  server->Post(config.predict_path,
               [handlers](const HttpRequest& request) { return PredictAll(handlers, request); });
  return std::nullopt;
}

std::string RequestFormat(const std::string& path) {
  const std::string_view rest =
      std::string_view(path).substr(path.starts_with("/v1/") ? sizeof("/v1/") - 1 : 1);
  std::string format;
  bool capital = false;
  for (const char c : rest.substr(0, rest.find(':'))) {
    if (c == '/' || c == '-' || c == '_') {
      capital = true;
      continue;
    }
    format += capital ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    capital = false;
  }
  return format;
}

}  // namespace polykv
