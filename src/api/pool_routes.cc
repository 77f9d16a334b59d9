// Changes to /polykv/pools: create, fork, pin, unpin, evict, flush, release.
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/json_response.h"
#include "api/pool_source.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/state_change.h"
#include "api/views.h"

namespace polykv {
namespace {

// The options of a create; the tokens come from ReadPoolSource.
Result<CreatePool> ReadOptions(const Json& body) {
  CreatePool command;
  Result<std::optional<int64_t>> branch_pos = CountField(body, "branch_pos");
  if (!branch_pos.ok()) return branch_pos.problem();
  if (branch_pos.value() > std::numeric_limits<int32_t>::max()) {
    return InvalidRequest("Field 'branch_pos': must be a position in the parent");
  }
  if (branch_pos.value()) command.branch_pos = static_cast<int32_t>(*branch_pos.value());
  Result<std::optional<std::string>> name = StringField(body, "name");
  if (!name.ok()) return name.problem();
  if (name.value().has_value()) {
    command.name = *name.value();
    const bool looks_like_id = command.name.find_first_not_of("0123456789") == std::string::npos;
    if (!IsName(command.name) || looks_like_id) {
      return InvalidRequest(
          "Field 'name': must be 1 to 256 bytes of UTF-8 without control characters, and not a "
          "number");
    }
  }
  const std::pair<const char*, bool*> flags[] = {
      {"pin", &command.pin}, {"unique", &command.unique}, {"wait", &command.wait}};
  for (const auto& [field, value] : flags) {
    Result<std::optional<bool>> flag = BoolField(body, field);
    if (!flag.ok()) return flag.problem();
    *value = flag.value().value_or(*value);
  }
  return command;
}

Json CreatedJson(const PoolCreated& pool, PoolId boot_id) {
  Json json = {{"pool_id", pool.pool_id},
               {"boot_id", boot_id},
               {"name", pool.name.empty() ? Json(nullptr) : Json(pool.name)},
               {"parent", pool.parent},
               {"branch_pos", pool.branch_pos},
               {"shared_len", pool.shared_len},
               {"prefix_len", pool.prefix_len},
               {"prefix_hash", PrefixHashText(pool.prefix_hash)},
               {"own_kv_bytes", pool.own_kv_bytes},
               {"created", pool.created},
               {"residency", pool.ready ? "resident" : "materializing"},
               {"n_prefilled", pool.n_prefilled},
               {"prefill_ms", pool.prefill_ms}};
  if (!pool.miss_reason.empty()) json["miss_reason"] = pool.miss_reason;
  return json;
}

// Those of the pool in the path, up to `branch_pos`.
Result<std::vector<Token>> ParentTokens(const Services& services, const HttpRequest& request,
                                        std::optional<int32_t> branch_pos) {
  ReadPoolTokens command{
      .tenant = request.caller.tenant, .pool = request.Param("id"), .n_first = branch_pos};
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  auto answer = Await(channel.get(), request);
  if (answer.has_value()) return *std::move(answer);
  return Problem{.status = 499, .type = "cancelled", .message = "the client is gone"};
}

HttpResponse Create(const Services& services, const HttpRequest& request, PoolKind kind) {
  std::vector<std::string_view> fields = PoolSourceFields(kind);
  fields.insert(fields.end(), {"name", "pin", "unique", "wait"});
  if (kind == PoolKind::kFork) fields.emplace_back("branch_pos");
  Result<Json> body = ReadStateChange(services.access, request, fields);
  if (!body.ok()) return ProblemResponse(body.problem());
  Result<CreatePool> command = ReadOptions(body.value());
  if (!command.ok()) return ProblemResponse(command.problem());
  const auto parent_tokens = [&] {
    return ParentTokens(services, request, command.value().branch_pos);
  };
  Result<PoolSource> source = ReadPoolSource(*services.model, body.value(), kind, parent_tokens);
  if (!source.ok()) return ProblemResponse(source.problem());

  command.value().tenant = request.caller.tenant;
  command.value().parent = kind == PoolKind::kFork ? request.Param("id") : "";
  command.value().tokens = std::move(source.value().tokens);
  command.value().append = source.value().append;
  command.value().from_session = source.value().from_session;
  const auto channel = command.value().channel;
  services.engine->Post(std::move(command.value()));
  const auto answer = Await(channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  const PoolCreated& pool = answer->value();
  Json json = CreatedJson(pool, services.engine->config().boot_id);
  if (source.value().template_break.has_value()) {
    json["template_break"] = *source.value().template_break;
  }
  return JsonResponse(json, pool.ready ? 200 : 202);
}

HttpResponse Change(const Services& services, const HttpRequest& request, ChangePool command) {
  command.tenant = request.caller.tenant;
  command.pool = request.Param("id");
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  const auto answer = Await(channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  const PoolStatus& status = answer->value();
  Json json = {{"pool_id", status.pool_id},
               {"refs", status.refs},
               {"pinned", status.pinned},
               {"n_evicted", status.n_evicted},
               {"released", status.released}};
  if (status.release_in_ms.has_value()) json["release_in_ms"] = *status.release_in_ms;
  return JsonResponse(json);
}

// A change by the action's own name in the path; its options are in the body.
HttpResponse ChangeByAction(const Services& services, const HttpRequest& request,
                            ChangePool::Action action) {
  const bool pin = action == ChangePool::Action::kPin;
  const bool has_key = pin || action == ChangePool::Action::kUnpin;
  std::vector<std::string_view> fields;
  if (pin) fields.emplace_back("ttl_ms");
  if (has_key) fields.emplace_back("pin_key");
  Result<Json> body = ReadStateChange(services.access, request, fields);
  if (!body.ok()) return ProblemResponse(body.problem());
  Result<std::optional<int64_t>> ttl_ms = CountField(body.value(), "ttl_ms");
  if (!ttl_ms.ok()) return ProblemResponse(ttl_ms.problem());
  Result<std::optional<std::string>> pin_key = StringField(body.value(), "pin_key");
  if (!pin_key.ok()) return ProblemResponse(pin_key.problem());
  return Change(
      services, request,
      {.action = action, .pin_key = pin_key.value().value_or(""), .ttl_ms = ttl_ms.value()});
}

HttpResponse Release(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(services.access, request, {});
  if (!body.ok()) return ProblemResponse(body.problem());
  return Change(services, request,
                {.action = ChangePool::Action::kRelease,
                 .subtree = request.IsSet("subtree"),
                 .force = request.IsSet("force")});
}

}  // namespace

void AddPoolRoutes(ModelRoutes* server, const Services* services) {
  server->Post("/polykv/pools", [services](const HttpRequest& request) {
    return Create(*services, request, PoolKind::kRoot);
  });
  server->Post("/polykv/pools/:id/fork", [services](const HttpRequest& request) {
    return Create(*services, request, PoolKind::kFork);
  });
  constexpr std::pair<const char*, ChangePool::Action> kActions[] = {
      {"pin", ChangePool::Action::kPin},
      {"unpin", ChangePool::Action::kUnpin},
      {"evict", ChangePool::Action::kEvict},
      {"flush", ChangePool::Action::kFlush}};
  for (const auto& [name, action] : kActions) {
    server->Post(std::string("/polykv/pools/:id/") + name,
                 [services, action = action](const HttpRequest& request) {
                   return ChangeByAction(*services, request, action);
                 });
  }
  server->Delete("/polykv/pools/:id",
                 [services](const HttpRequest& request) { return Release(*services, request); });
}

}  // namespace polykv
