#include "api/protocol/served_model.h"

#include <exception>
#include <filesystem>
#include <utility>

#include "api/protocol/json.h"
#include "api/protocol/model_state.h"
#include "build-info.h"
#include "chat.h"
#include "server-task.h"

namespace polykv {
namespace {

constexpr size_t kMaxErrorBytes = 200;  // the library repeats what it read

std::string ModelName(const common_params& params) {
  if (!params.model_alias.empty()) return *params.model_alias.begin();
  std::string name = params.model.get_name();
  return name.empty() ? std::filesystem::path(params.model.path).filename().string() : name;
}

server_chat_params ChatParams(const common_params& params, const llama_model* model) {
  server_chat_params chat = {};
  chat.use_jinja = params.use_jinja;
  chat.prefill_assistant = params.prefill_assistant;
  chat.reasoning_format = params.reasoning_format;
  chat.chat_template_kwargs = params.default_template_kwargs;
  chat.tmpls = common_chat_templates_init(model, params.chat_template);
  chat.allow_image = false;
  chat.allow_audio = false;
  chat.allow_video = false;
  chat.enable_thinking = params.enable_reasoning != 0 && params.use_jinja &&
                         common_chat_templates_support_enable_thinking(chat.tmpls.get());
  chat.reasoning_budget = params.sampling.reasoning_budget_tokens;
  chat.reasoning_budget_message = params.sampling.reasoning_budget_message;
  chat.media_path = params.media_path;
  chat.force_pure_content = params.force_pure_content_parser;
  return chat;
}

std::string TokenOrEmpty(const llama_vocab* vocab, llama_token token) {
  return token == LLAMA_TOKEN_NULL ? "" : common_token_to_piece(vocab, token, true);
}

common_json ModelInfoJson(const ServedModel::State& state, int64_t unix_s) {
  return {
      {"id", state.name},
      {"aliases", state.params.model_alias},
      {"tags", state.params.model_tags},
      {"object", "model"},
      {"created", unix_s},
      {"owned_by", "llamacpp"},
      {"meta",
       {{"vocab_type", llama_vocab_type(state.vocab)},
        {"n_vocab", llama_vocab_n_tokens(state.vocab)},
        {"n_ctx", state.n_ctx_plain},
        {"n_ctx_train", llama_model_n_ctx_train(state.model)},
        {"n_embd", llama_model_n_embd_inp(state.model)},
        {"n_params", llama_model_n_params(state.model)},
        {"size", llama_model_size(state.model)},
        {"ftype", llama_ftype_name(llama_model_ftype(state.model))}}},
  };
}

}  // namespace

Result<std::unique_ptr<ServedModel>> ServedModel::Make(ServedModelConfig config) {
  try {
    server_chat_params chat = ChatParams(*config.params, config.model);
    // Throws on a template that parses but cannot render.
    common_chat_format_example(chat.tmpls.get(), chat.use_jinja, chat.chat_template_kwargs);
    auto state = std::unique_ptr<State>(new State{
        .params = *config.params,
        .model = config.model,
        .vocab = llama_model_get_vocab(config.model),
        .n_ctx_plain = config.n_ctx_plain,
        .max_generations = config.max_generations,
        .pooled_vectors = config.pooled_vectors,
        .make_sampler = std::move(config.make_sampler),
        .name = ModelName(*config.params),
        .chat = std::move(chat),
    });
    return std::unique_ptr<ServedModel>(new ServedModel(std::move(state)));
  } catch (const std::exception& error) {
    return Problem{.status = 500,
                   .type = "server_error",
                   .message = std::string("the chat template is not usable (try --no-jinja, or "
                                          "--chat-template chatml): ") +
                              error.what()};
  }
}

ServedModel::ServedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
ServedModel::~ServedModel() = default;

std::string ServedModel::PropsBody(const std::string& polykv, bool is_sleeping) const {
  const common_params& params = state_->params;
  const common_chat_templates* templates = state_->chat.tmpls.get();
  task_params defaults;
  defaults.sampling = params.sampling;
  common_json props = {
      {"default_generation_settings",
       {{"params", defaults.to_json(true)}, {"n_ctx", state_->n_ctx_plain}}},
      {"total_slots", params.n_parallel},
      {"model_alias", state_->name},
      {"model_ftype", llama_ftype_name(llama_model_ftype(state_->model))},
      {"model_path", params.model.path},
      {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
      {"media_marker", get_media_marker()},
      {"endpoint_slots", params.endpoint_slots},
      {"endpoint_props", params.endpoint_props},
      {"endpoint_metrics", params.endpoint_metrics},
      {"ui", params.ui},
      {"ui_settings", common_json::object()},
      {"chat_template", common_chat_templates_source(templates, "")},
      {"chat_template_caps", common_chat_templates_get_caps(templates)},
      {"bos_token", TokenOrEmpty(state_->vocab, llama_vocab_bos(state_->vocab))},
      {"eos_token", TokenOrEmpty(state_->vocab, llama_vocab_eos(state_->vocab))},
      {"build_info", std::string(llama_build_info())},
      {"is_sleeping", is_sleeping},
      {"cors_proxy_enabled", false},
  };
  const std::string tool_use = common_chat_templates_source(templates, "tool_use");
  if (params.use_jinja && !tool_use.empty()) props["chat_template_tool_use"] = tool_use;
  props["opencoti"] = common_json{{"polykv", common_json::parse(polykv)}};
  return safe_json_to_str(props);
}

std::string ServedModel::ModelsBody(int64_t unix_s) const {
  const common_json legacy = {
      {"name", state_->name},
      {"model", state_->name},
      {"modified_at", ""},
      {"size", ""},
      {"digest", ""},
      {"type", "model"},
      {"description", ""},
      {"tags", common_json::array({""})},
      {"capabilities", common_json::array({"completion"})},
      {"parameters", ""},
      {"details",
       {{"parent_model", ""},
        {"format", "gguf"},
        {"family", ""},
        {"families", common_json::array({""})},
        {"parameter_size", ""},
        {"quantization_level", ""}}},
  };
  return safe_json_to_str({{"models", common_json::array({legacy})},
                           {"object", "list"},
                           {"data", common_json::array({ModelInfoJson(*state_, unix_s)})}});
}

const std::string& ServedModel::slot_save_path() const { return state_->params.slot_save_path; }
bool ServedModel::endpoint_slots() const { return state_->params.endpoint_slots; }
bool ServedModel::endpoint_metrics() const { return state_->params.endpoint_metrics; }
bool ServedModel::endpoint_props() const { return state_->params.endpoint_props; }

Problem ClientProblem(const std::string& message) {
  for (const char* medium : {"image", "audio", "video"}) {
    if (message.starts_with(std::string(medium) + " input is not supported")) {
      return {.status = 500, .type = "server_error", .message = message};
    }
  }
  return InvalidRequest(message);
}

Result<common_json> ParseBody(const std::string& body) {
  if (std::optional<Problem> too_deep = CheckJsonDepth(body)) return *std::move(too_deep);
  try {
    common_json json = common_json::parse(body);
    if (!json.is_object()) return InvalidRequest("The request body must be a JSON object");
    return json;
  } catch (const common_json_error& error) {
    return InvalidRequest(std::string(error.what()).substr(0, kMaxErrorBytes));
  }
}

}  // namespace polykv
