#include "api/protocol/lora_adapters.h"

#include <utility>

#include "api/protocol/json.h"
#include "api/protocol/model_state.h"
#include "server-common.h"
#include "server-task.h"

namespace polykv {

AdapterSet ToAdapterSet(const ServedModel::State& model, const std::map<int32_t, float>& scale_of) {
  return {scale_of, static_cast<int32_t>(model.params.lora_adapters.size())};
}

Result<AdapterSet> ParseLoraAdapters(const ServedModel& model, const std::string& body) {
  if (std::optional<Problem> too_deep = CheckJsonDepth(body)) return *std::move(too_deep);
  return ClientFault<AdapterSet>([&]() -> Result<AdapterSet> {
    const common_json json = common_json::parse(body);
    if (!json.is_array()) return InvalidRequest("Request body must be an array");
    return ToAdapterSet(model.state(), parse_lora_request(json));
  });
}

std::string LoraAdaptersBody(const ServedModel& model, const AdapterSet& adapters) {
  server_task_result_get_lora result;
  int32_t id = 0;
  for (common_adapter_lora_info adapter : model.state().params.lora_adapters) {
    adapter.scale = adapters.ScaleOf(id++);
    result.loras.push_back(
        {.info = std::move(adapter), .alora_invocation_string = {}, .alora_invocation_tokens = {}});
  }
  return safe_json_to_str(result.to_json());
}

std::string LoraAppliedBody() {
  return safe_json_to_str(server_task_result_apply_lora().to_json());
}

}  // namespace polykv
