#include "api/protocol/slot_files.h"

#include "api/protocol/model_state.h"
#include "common.h"
#include "server-task.h"

namespace polykv {
namespace {

std::string Body(int32_t id_slot, const std::string& filename, const SlotChanged& changed,
                 bool is_save) {
  server_task_result_slot_save_load result;
  result.id_slot = id_slot;
  result.filename = filename;
  result.is_save = is_save;
  result.n_tokens = static_cast<size_t>(changed.n_tokens);
  result.n_bytes = static_cast<size_t>(changed.n_bytes);
  result.t_ms = changed.ms;
  return safe_json_to_str(result.to_json());
}

}  // namespace

Result<std::string> SlotFilename(const std::string& body) {
  Result<common_json> json = ParseBody(body);
  if (!json.ok()) return json.problem();
  if (!json.value().contains("filename") || !json.value().at("filename").is_string()) {
    return InvalidRequest("Field 'filename': must be a string");
  }
  const std::string filename = json.value().at("filename").get<std::string>();
  if (!fs_validate_filename(filename)) return InvalidRequest("Invalid filename");
  return filename;
}

std::string SlotSavedBody(int32_t id_slot, const std::string& filename, const SlotChanged& saved) {
  return Body(id_slot, filename, saved, true);
}

std::string SlotRestoredBody(int32_t id_slot, const std::string& filename,
                             const SlotChanged& restored) {
  return Body(id_slot, filename, restored, false);
}

std::string SlotErasedBody(int32_t id_slot, const SlotChanged& erased) {
  server_task_result_slot_erase result;
  result.id_slot = id_slot;
  result.n_erased = static_cast<size_t>(erased.n_tokens);
  return safe_json_to_str(result.to_json());
}

}  // namespace polykv
