// GET /polykv/pools and /polykv/sessions: answered from the engine's snapshot. A model that sleeps
// has neither, and is not woken to say so.
#include <set>
#include <string>
#include <utility>

#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/views.h"

namespace polykv {
namespace {

HttpResponse ListPools(const Services& services, const HttpRequest& request) {
  return JsonResponse(PoolTreeJson(*services.Snapshot(), request.caller, services.Wall()));
}

// The pool itself, and under "pools" its subtree, the pool first.
HttpResponse ShowPool(const Services& services, const HttpRequest& request) {
  const auto snapshot = services.Snapshot();
  const PoolView* root = FindPoolOrNull(*snapshot, request.caller, request.Param("id"));
  if (root == nullptr) {
    return ProblemResponse({.status = 404, .type = "pool_not_found", .message = "No such pool"});
  }
  const Json own = PoolJson(*root, *snapshot, services.Wall());
  Json json = own;
  json.update(PoolTreeHead(*snapshot));
  json["pools"] = Json::array({own});
  std::set<PoolId> subtree = {root->pool_id};
  for (const PoolView& pool : snapshot->pools) {  // by id: parents come before their children
    if (!subtree.contains(pool.parent)) continue;
    subtree.insert(pool.pool_id);
    json["pools"].push_back(PoolJson(pool, *snapshot, services.Wall()));
  }
  return JsonResponse(json);
}

HttpResponse ListSessions(const Services& services, const HttpRequest& request) {
  const auto snapshot = services.Snapshot();
  const std::string wanted = request.Param("session_id");
  Json sessions = Json::array();
  for (const SessionView& session : snapshot->sessions) {
    const bool is_meant = wanted.empty() || session.session_id == wanted;
    if (is_meant && request.caller.Sees(session.tenant)) {
      sessions.push_back(SessionJson(session, services.Wall()));
    }
  }
  if (!wanted.empty() && sessions.empty()) {
    return ProblemResponse(
        {.status = 404, .type = "session_not_found", .message = "No such session"});
  }
  return JsonResponse({{"boot_id", snapshot->boot_id},
                       {"n_sessions", sessions.size()},
                       {"sessions", std::move(sessions)}});
}

}  // namespace

void AddListRoutes(HttpServer* server, const Services* services) {
  server->Get("/polykv/pools",
              [services](const HttpRequest& request) { return ListPools(*services, request); });
  server->Get("/polykv/pools/:id",
              [services](const HttpRequest& request) { return ShowPool(*services, request); });
  server->Get("/polykv/sessions",
              [services](const HttpRequest& request) { return ListSessions(*services, request); });
}

}  // namespace polykv
