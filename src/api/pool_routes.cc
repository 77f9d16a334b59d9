// /polykv/pools: create, list, pin, unpin, release.
#include <algorithm>
#include <set>

#include "api/problem.h"
#include "api/protocol/messages_prefix.h"
#include "api/protocol/text_tools.h"
#include "api/routes.h"
#include "api/state_change.h"
#include "api/views.h"

namespace polykv {
namespace {

struct PoolSource {
  std::vector<Token> tokens;
  std::optional<int32_t> template_break;
};

HttpResponse JsonResponse(const Json& json, int status = 200) {
  HttpResponse response;
  response.status = status;
  response.body = JsonText(json);
  return response;
}

HttpResponse NoSuchPool() {
  return ProblemResponse({.status = 404, .type = "pool_not_found", .message = "No such pool"});
}

Result<PoolSource> SourceFromTokens(const Services& services, const Json& tokens) {
  const bool is_list = tokens.is_array() && !tokens.empty() &&
                       std::all_of(tokens.begin(), tokens.end(),
                                   [](const Json& token) { return token.is_number_integer(); });
  if (!is_list) return InvalidRequest("Field 'tokens': must be a list of at least one token id");
  Result<std::vector<Token>> checked = TokenizePrompt(*services.model, tokens);
  if (!checked.ok()) return checked.problem();
  return PoolSource{.tokens = std::move(checked.value()), .template_break = {}};
}

Result<PoolSource> SourceFromPrompt(const Services& services, const Json& prompt) {
  if (!prompt.is_string()) return InvalidRequest("Field 'prompt': must be a string");
  Result<std::vector<Token>> tokens = TokenizePrompt(*services.model, prompt);
  if (!tokens.ok()) return tokens.problem();
  return PoolSource{.tokens = std::move(tokens.value()), .template_break = {}};
}

Result<PoolSource> SourceFromMessages(const Services& services, const Json& body) {
  Json chat = Json::object();
  for (const char* field : {"messages", "tools", "tool_choice", "parallel_tool_calls",
                            "chat_template_kwargs", "reasoning_effort"}) {
    if (body.contains(field)) chat[field] = body[field];
  }
  Result<MessagesPrefix> prefix = ComputeMessagesPrefix(*services.model, chat);
  if (!prefix.ok()) return prefix.problem();
  return PoolSource{.tokens = std::move(prefix.value().tokens),
                    .template_break = prefix.value().template_break};
}

Result<PoolSource> ReadSource(const Services& services, const Json& body) {
  std::vector<std::string> given;
  for (const char* source : {"tokens", "prompt", "messages", "from_session"}) {
    if (body.contains(source) && !body[source].is_null()) given.emplace_back(source);
  }
  if (given.size() != 1) {
    return InvalidRequest("Exactly one of 'tokens', 'prompt' and 'messages' is needed");
  }
  if (given[0] == "tokens") return SourceFromTokens(services, body["tokens"]);
  if (given[0] == "prompt") return SourceFromPrompt(services, body["prompt"]);
  if (given[0] == "messages") return SourceFromMessages(services, body);
  return Problem{.status = 501,
                 .type = "not_supported_error",
                 .message = "Field 'from_session': not supported by this version"};
}

// The options of a create; the tokens come from ReadSource.
Result<CreatePool> ReadOptions(const Json& body) {
  CreatePool command;
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

Json CreatedJson(const PoolCreated& pool, PoolId boot_id, const PoolView* view) {
  Json json = {{"pool_id", pool.pool_id},
               {"boot_id", boot_id},
               {"name", pool.name.empty() ? Json(nullptr) : Json(pool.name)},
               {"parent", view == nullptr ? kNoPool : view->parent},
               {"branch_pos", view == nullptr ? 0 : view->branch_pos},
               {"prefix_len", pool.prefix_len},
               {"prefix_hash", PrefixHashText(pool.prefix_hash)},
               {"own_kv_bytes", pool.own_kv_bytes},
               {"created", pool.created},
               {"residency", pool.ready ? "resident" : "materializing"},
               {"n_prefilled", pool.n_prefilled},
               {"prefill_ms", pool.prefill_ms}};
  return json;
}

const PoolView* FindOrNull(const EngineSnapshot& snapshot, const std::string& id_or_name) {
  const auto found = std::find_if(snapshot.pools.begin(), snapshot.pools.end(),
                                  [&id_or_name](const PoolView& pool) {
                                    return std::to_string(pool.pool_id) == id_or_name ||
                                           (!pool.name.empty() && pool.name == id_or_name);
                                  });
  return found == snapshot.pools.end() ? nullptr : &*found;
}

HttpResponse Create(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(services.access, request,
                                      {"tokens", "prompt", "messages", "from_session", "tools",
                                       "tool_choice", "parallel_tool_calls", "chat_template_kwargs",
                                       "reasoning_effort", "name", "pin", "unique", "wait"});
  if (!body.ok()) return ProblemResponse(body.problem());
  Result<CreatePool> command = ReadOptions(body.value());
  if (!command.ok()) return ProblemResponse(command.problem());
  Result<PoolSource> source = ReadSource(services, body.value());
  if (!source.ok()) return ProblemResponse(source.problem());

  command.value().tokens = std::move(source.value().tokens);
  const auto channel = command.value().channel;
  services.engine->Post(std::move(command.value()));
  const auto answer = Await(channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  const PoolCreated& pool = answer->value();
  const auto snapshot = services.engine->Snapshot();
  Json json =
      CreatedJson(pool, snapshot->boot_id, FindOrNull(*snapshot, std::to_string(pool.pool_id)));
  if (source.value().template_break.has_value()) {
    json["template_break"] = *source.value().template_break;
  }
  return JsonResponse(json, pool.ready ? 200 : 202);
}

WallClock Wall(const Services& services) {
  return {.unix_ms = services.unix_ms(), .now_us = services.clock->NowUs()};
}

HttpResponse List(const Services& services) {
  const auto snapshot = services.engine->Snapshot();
  Json json = PoolTreeHead(*snapshot);
  json["pools"] = Json::array();
  for (const PoolView& pool : snapshot->pools) {
    json["pools"].push_back(PoolJson(pool, *snapshot, Wall(services)));
  }
  return JsonResponse(json);
}

// The pool itself, and under "pools" its subtree, the pool first.
HttpResponse Show(const Services& services, const HttpRequest& request) {
  const auto snapshot = services.engine->Snapshot();
  const PoolView* root = FindOrNull(*snapshot, request.Param("id"));
  if (root == nullptr) return NoSuchPool();
  Json json = PoolJson(*root, *snapshot, Wall(services));
  json.update(PoolTreeHead(*snapshot));
  json["pools"] = Json::array({PoolJson(*root, *snapshot, Wall(services))});
  std::set<PoolId> subtree = {root->pool_id};
  for (const PoolView& pool : snapshot->pools) {  // by id: parents come before their children
    if (!subtree.contains(pool.parent)) continue;
    subtree.insert(pool.pool_id);
    json["pools"].push_back(PoolJson(pool, *snapshot, Wall(services)));
  }
  return JsonResponse(json);
}

HttpResponse Change(const Services& services, const HttpRequest& request, ChangePool command) {
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
               {"released", status.released}};
  if (status.release_in_ms.has_value()) json["release_in_ms"] = *status.release_in_ms;
  return JsonResponse(json);
}

HttpResponse Pin(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(services.access, request, {"ttl_ms"});
  if (!body.ok()) return ProblemResponse(body.problem());
  Result<std::optional<int64_t>> ttl_ms = CountField(body.value(), "ttl_ms");
  if (!ttl_ms.ok()) return ProblemResponse(ttl_ms.problem());
  return Change(services, request, {.action = ChangePool::Action::kPin, .ttl_ms = ttl_ms.value()});
}

HttpResponse Unpin(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(services.access, request, {});
  if (!body.ok()) return ProblemResponse(body.problem());
  return Change(services, request, {.action = ChangePool::Action::kUnpin});
}

HttpResponse Release(const Services& services, const HttpRequest& request) {
  Result<Json> body = ReadStateChange(services.access, request, {});
  if (!body.ok()) return ProblemResponse(body.problem());
  const std::string force = request.Param("force");
  return Change(services, request,
                {.action = ChangePool::Action::kRelease, .force = force == "1" || force == "true"});
}

}  // namespace

void AddPoolRoutes(ModelRoutes* server, const Services* services) {
  server->Get("/polykv/pools", [services](const HttpRequest&) { return List(*services); });
  server->Get("/polykv/pools/:id",
              [services](const HttpRequest& request) { return Show(*services, request); });
  server->Post("/polykv/pools",
               [services](const HttpRequest& request) { return Create(*services, request); });
  server->Post("/polykv/pools/:id/pin",
               [services](const HttpRequest& request) { return Pin(*services, request); });
  server->Post("/polykv/pools/:id/unpin",
               [services](const HttpRequest& request) { return Unpin(*services, request); });
  server->Delete("/polykv/pools/:id",
                 [services](const HttpRequest& request) { return Release(*services, request); });
}

}  // namespace polykv
