// /polykv/pools/{id}/admission and /capacity.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "admission/verdict_facts.h"
#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/state_change.h"
#include "api/views.h"

namespace polykv {
namespace {

Problem BadField(const std::string& name, const std::string& wants) {
  return InvalidRequest("Field '" + name + "': " + wants);
}

// A whole number in [min, 2^31).
template <typename T>
std::optional<Problem> ReadCount(const Json& body, const char* name, int64_t min, T* value) {
  Result<std::optional<int64_t>> field = CountField(body, name);
  if (!field.ok()) return field.problem();
  if (!field.value()) return std::nullopt;
  const int64_t number = *field.value();
  if (number < min || number > std::numeric_limits<int32_t>::max()) {
    return BadField(name, "must be a whole number from " + std::to_string(min));
  }
  *value = static_cast<int32_t>(number);
  return std::nullopt;
}

// One of the words, as its place in the list.
std::optional<Problem> ReadWord(const Json& body, const char* name,
                                const std::vector<std::string>& words, int* value) {
  Result<std::optional<std::string>> field = StringField(body, name);
  if (!field.ok()) return field.problem();
  if (!field.value()) return std::nullopt;
  const auto found = std::find(words.begin(), words.end(), *field.value());
  if (found == words.end()) {
    std::string wants = "must be one of";
    for (const std::string& word : words) wants += " \"" + word + "\"";
    return BadField(name, wants);
  }
  *value = static_cast<int>(found - words.begin());
  return std::nullopt;
}

const std::vector<std::string>& ModeWords() {
  static const std::vector<std::string> words = {"advisory", "enforced"};
  return words;
}
const std::vector<std::string>& SaturationWords() {
  static const std::vector<std::string> words = {"reject", "warn", "queue"};
  return words;
}

Result<AdmissionPolicy> ReadPolicy(const Json& body) {
  AdmissionPolicy policy;
  const Json target = body.value("target_tps_per_session", Json());
  if (!target.is_number() || !(target.get<double>() > 0)) {
    return BadField("target_tps_per_session", "must be a number over 0");
  }
  policy.target_tps_per_session = target.get<double>();
  int mode = 0;
  int on_saturation = 0;
  for (std::optional<Problem> problem :
       {ReadWord(body, "mode", ModeWords(), &mode),
        ReadWord(body, "on_saturation", SaturationWords(), &on_saturation),
        ReadCount(body, "guarantee_min_sessions", 0, &policy.guarantee_min_sessions),
        ReadCount(body, "settle_tokens", 1, &policy.settle_tokens),
        ReadCount(body, "settle_max_ms", 1, &policy.settle_max_ms),
        ReadCount(body, "max_queue", 0, &policy.max_queue),
        ReadCount(body, "queue_timeout_ms", 0, &policy.queue_timeout_ms),
        ReadCount(body, "max_tokens_per_request", 1, &policy.max_tokens_per_request)}) {
    if (problem) return *std::move(problem);
  }
  policy.mode = static_cast<AdmissionPolicy::Mode>(mode);
  policy.on_saturation = static_cast<AdmissionPolicy::OnSaturation>(on_saturation);
  return policy;
}

HttpResponse SetPolicy(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(
      services.access, request,
      {"target_tps_per_session", "mode", "on_saturation", "guarantee_min_sessions", "settle_tokens",
       "settle_max_ms", "max_queue", "queue_timeout_ms", "max_tokens_per_request"});
  if (!body.ok()) return ProblemResponse(body.problem());
  Result<AdmissionPolicy> policy = ReadPolicy(body.value());
  if (!policy.ok()) return ProblemResponse(policy.problem());
  SetAdmission command{
      .tenant = request.caller.tenant, .pool = request.Param("id"), .policy = policy.value()};
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  const auto answer = Await(channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  Json json = PolicyJson(policy.value());
  json["pool_id"] = answer->value();
  return JsonResponse(json);
}

std::optional<int64_t> ParseCount(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 15 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  return digits ? std::optional<int64_t>(std::stoll(text)) : std::nullopt;
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json CapacityJson(const Capacity& capacity, const AskCapacity& asked) {
  Json json = Json::object();
  AddFacts(json, VerdictFacts(capacity.verdict));
  json["known_session"] = capacity.verdict.reason == "known session";
  json["governed_by"] =
      capacity.governed_by == kNoPool ? Json(nullptr) : Json(capacity.governed_by);
  json["drop_per_admit_ewma"] = OrNull(capacity.forecast.drop_ewma);
  json["mean_active_tps"] =
      capacity.governed.mean_tps > 0 ? Json(capacity.governed.mean_tps) : Json(nullptr);
  json["n_warming"] = capacity.governed.n_warming;
  json["n_pool_sessions"] = capacity.governed.n_attached;
  json["n_idle_sessions"] = capacity.governed.n_idle;
  json["expected_tokens"] = OrNull(asked.expected_tokens);
  json["seq_ids_free"] = capacity.server.seq_ids_free;
  json["queue_len"] = capacity.n_queued;
  json["kv_streams_total"] = OrNull(capacity.streams_total);
  json["kv_streams_free"] = OrNull(capacity.server.streams_free);
  json["kv_cells_per_stream"] = OrNull(capacity.cells_per_stream);
  return json;
}

HttpResponse ShowCapacity(const Services& services, const HttpRequest& request) {
  AskCapacity command{.tenant = request.caller.tenant,
                      .pool = request.Param("id"),
                      .session_id = request.Param("session_id")};
  if (const std::string tokens = request.Param("expected_tokens"); !tokens.empty()) {
    command.expected_tokens = ParseCount(tokens);
    if (!command.expected_tokens) {
      return ProblemResponse(BadField("expected_tokens", "must be a number of tokens"));
    }
  }
  const AskCapacity asked = command;
  services.engine->Post(std::move(command));
  const auto answer = Await(asked.channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  return JsonResponse(CapacityJson(answer->value(), asked));
}

HttpResponse ShowPolicy(const Services& services, const HttpRequest& request) {
  const auto snapshot = services.engine->Snapshot();
  const PoolView* const pool = FindPoolOrNull(*snapshot, request.caller, request.Param("id"));
  if (pool == nullptr) {
    return ProblemResponse({.status = 404, .type = "pool_not_found", .message = "No such pool"});
  }
  Json json = pool->admission ? PolicyJson(*pool->admission) : Json::object();
  json["pool_id"] = pool->pool_id;
  return JsonResponse(json);
}

}  // namespace

Json PolicyJson(const AdmissionPolicy& policy) {
  return {{"target_tps_per_session", policy.target_tps_per_session},
          {"mode", ModeWords()[static_cast<size_t>(policy.mode)]},
          {"on_saturation", SaturationWords()[static_cast<size_t>(policy.on_saturation)]},
          {"guarantee_min_sessions", policy.guarantee_min_sessions},
          {"settle_tokens", policy.settle_tokens},
          {"settle_max_ms", policy.settle_max_ms},
          {"max_queue", OrNull(policy.max_queue)},
          {"queue_timeout_ms", policy.queue_timeout_ms},
          {"max_tokens_per_request", OrNull(policy.max_tokens_per_request)}};
}

void AddAdmissionRoutes(ModelRoutes* server, const Services* services) {
  server->Post("/polykv/pools/:id/admission",
               [services](const HttpRequest& request) { return SetPolicy(*services, request); });
  server->Get("/polykv/pools/:id/admission",
              [services](const HttpRequest& request) { return ShowPolicy(*services, request); });
  server->Get("/polykv/pools/:id/capacity",
              [services](const HttpRequest& request) { return ShowCapacity(*services, request); });
}

}  // namespace polykv
