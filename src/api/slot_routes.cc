// POST /slots/:id_slot?action=save|restore|erase.
#include <charconv>
#include <optional>

#include "api/problem.h"
#include "api/protocol/slot_files.h"
#include "api/routes.h"
#include "api/state_change.h"

namespace polykv {
namespace {

using Action = ChangeSlot::Action;

std::optional<Action> ActionOf(const std::string& name) {
  if (name == "save") return Action::kSave;
  if (name == "restore") return Action::kRestore;
  if (name == "erase") return Action::kErase;
  return std::nullopt;
}

std::string ResultBody(const ChangeSlot& change, const std::string& filename,
                       const SlotChanged& changed) {
  switch (change.action) {
    case Action::kSave:
      return SlotSavedBody(change.id_slot, filename, changed);
    case Action::kRestore:
      return SlotRestoredBody(change.id_slot, filename, changed);
    case Action::kErase:
      break;
  }
  return SlotErasedBody(change.id_slot, changed);
}

// Tenants have files of their own in the one folder.
std::string FilePrefix(TenantId tenant) {
  return tenant == kEverybody ? "" : "key-" + std::to_string(tenant) + "-";
}

HttpResponse Change(const Services& services, const HttpRequest& request) {
  const std::string& folder = services.model->slot_save_path();
  if (folder.empty()) {
    return ProblemResponse({.status = 501,
                            .type = "not_supported_error",
                            .message = "This server does not support slots action. Start it with "
                                       "`--slot-save-path`"});
  }
  ChangeSlot change{.tenant = request.caller.tenant};
  const std::string id = request.Param("id_slot");
  if (std::from_chars(id.data(), id.data() + id.size(), change.id_slot).ec != std::errc()) {
    return ProblemResponse(InvalidRequest("Invalid slot ID"));
  }
  const std::optional<Action> action = ActionOf(request.Param("action"));
  if (!action.has_value()) return ProblemResponse(InvalidRequest("Invalid action"));
  change.action = *action;
  std::string filename;
  if (change.action != Action::kErase) {
    Result<std::string> name = SlotFilename(request.body);
    if (!name.ok()) return ProblemResponse(name.problem());
    filename = std::move(name.value());
    change.path = folder + FilePrefix(change.tenant) + filename;
  }
  services.engine->Post(ChangeSlot(change));
  const auto answer = Await(change.channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  HttpResponse response;
  response.body = ResultBody(change, filename, answer->value());
  return response;
}

}  // namespace

void AddSlotRoutes(ModelRoutes* server, const Services* services) {
  server->Post("/slots/:id_slot",
               [services](const HttpRequest& request) { return Change(*services, request); });
}

}  // namespace polykv
