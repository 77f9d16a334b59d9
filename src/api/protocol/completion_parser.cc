#include "api/protocol/completion_parser.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "api/protocol/lora_adapters.h"
#include "api/protocol/model_state.h"
#include "api/protocol/prompt_tokens.h"
#include "api/protocol/response_plan.h"
#include "server-chat.h"
#include "server-schema.h"
#include "server-task.h"

namespace polykv {
namespace {

constexpr double kInt32Min = std::numeric_limits<int32_t>::min();
constexpr double kInt32Max = std::numeric_limits<int32_t>::max();

struct IntegerField {
  const char* name;
  double min = kInt32Min;
  double max = kInt32Max;
};

// Integers that the schema reads without looking at their size, or at their sign where that
// matters.
constexpr IntegerField kIntegerFields[] = {
    {"n_predict"},
    {"max_tokens"},
    {"max_completion_tokens"},
    {"max_output_tokens"},
    {"n_indent"},
    {"n_keep"},
    {"n_discard"},
    {"n_cmpl"},
    {"n"},
    {"n_cache_reuse"},
    {"top_k"},
    {"repeat_last_n"},
    {"dry_allowed_length"},
    {"dry_penalty_last_n"},
    {"mirostat"},
    {"min_keep"},
    {"sse_ping_interval"},
    {"reasoning_budget_tokens"},
    {"thinking_budget_tokens"},
    {"n_probs", 0},
    {"logprobs", 0},
    {"top_logprobs", 0},
    {"id_slot", -1},
    {"chat_format", 0, static_cast<double>(COMMON_CHAT_FORMAT_COUNT) - 1},
};

std::optional<Problem> CheckIntegers(const common_json& body) {
  for (const IntegerField& field : kIntegerFields) {
    if (!body.contains(field.name) || !body.at(field.name).is_number()) continue;
    const double value = body.at(field.name).get<double>();
    if (value < field.min || value > field.max) {
      return InvalidRequest("Field '" + std::string(field.name) +
                            "': " + body.at(field.name).dump() + " is out of range");
    }
  }
  if (body.contains("id_slot") && !body.at("id_slot").is_null() &&
      !body.at("id_slot").is_number_integer()) {
    return InvalidRequest("Field 'id_slot': must be an integer");
  }
  return std::nullopt;
}

task_response_type ResponseType(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kOaiCompletion:
      return TASK_RESPONSE_TYPE_OAI_CMPL;
    case Endpoint::kChat:
      return TASK_RESPONSE_TYPE_OAI_CHAT;
    case Endpoint::kResponses:
      return TASK_RESPONSE_TYPE_OAI_RESP;
    case Endpoint::kMessages:
      return TASK_RESPONSE_TYPE_ANTHROPIC;
    case Endpoint::kCompletion:
    case Endpoint::kInfill:
      break;
  }
  return TASK_RESPONSE_TYPE_NONE;
}

common_json RenderChat(const ServedModel::State& model, common_json body) {
  std::vector<raw_buffer> files;  // stays empty: media are refused
  return oaicompat_chat_params_parse(body, model.chat, files);
}

// The body in llama-server's native form: with a "prompt".
Result<common_json> NativeBody(const ServedModel::State& model, Endpoint endpoint,
                               common_json body) {
  switch (endpoint) {
    case Endpoint::kChat:
      return RenderChat(model, std::move(body));
    case Endpoint::kResponses:
      return RenderChat(model, server_chat_convert_responses_to_chatcmpl(body));
    case Endpoint::kMessages:
      return RenderChat(model, server_chat_convert_anthropic_to_oai(body));
    case Endpoint::kInfill: {
      Result<common_json> prompt = InfillPrompt(model, body);
      if (!prompt.ok()) return prompt;
      body["prompt"] = std::move(prompt.value());
      return body;
    }
    case Endpoint::kCompletion:
    case Endpoint::kOaiCompletion:
      break;
  }
  return body;
}

// What the chat template puts in front of the messages of each role.
common_chat_msg_delimiters MessageDelimiters(const ServedModel::State& model,
                                             const common_json& data) {
  auto delimiters = common_chat_msg_delimiters_parse(
      json_value(data, "message_delimiters", common_json::array()));
  delimiters.tokenize(model.vocab);
  return delimiters;
}

std::vector<Pos> UserStarts(const common_chat_msg_delimiters& delimiters,
                            const llama_tokens& prompt) {
  std::vector<Pos> starts;
  for (const common_chat_msg_span& span : delimiters.split(prompt).spans) {
    if (span.role == COMMON_CHAT_ROLE_USER) starts.push_back(static_cast<Pos>(span.pos));
  }
  return starts;
}

// Makes the engine's requests and the writer's plan, generation by generation.
class JobBuilder {
 public:
  JobBuilder(const ServedModel::State& model, Endpoint endpoint, task_params params,
             const AttachFields& attach, common_chat_msg_delimiters delimiters, int32_t id_slot,
             std::string request_id)
      : model_(model),
        endpoint_(endpoint),
        params_(std::move(params)),
        attach_(attach),
        delimiters_(std::move(delimiters)),
        id_slot_(id_slot),
        request_id_(std::move(request_id)) {
    plan_.vocab = model.vocab;
    plan_.with_attach_block = attach.sent;
  }

  std::optional<Problem> AddPrompt(const llama_tokens& prompt) {
    Result<std::unique_ptr<GenerationRequest>> request = Make(prompt, 0);
    if (!request.ok()) return request.problem();
    request.value()->prompt = prompt;
    request.value()->id_slot = id_slot_;
    request.value()->attach = attach_.spec;
    request.value()->n_keep = KeptByShift(params_, prompt);
    request.value()->user_starts = UserStarts(delimiters_, prompt);
    for (int32_t choice = 1; choice < params_.n_cmpl; ++choice) {
      Result<std::unique_ptr<GenerationRequest>> other = Make(prompt, choice);
      if (!other.ok()) return other.problem();
      request.value()->choices.push_back(std::move(other.value()));
    }
    job_.requests.push_back(std::move(request.value()));
    return std::nullopt;
  }

  CompletionJob Build() && {
    job_.stream = params_.stream;
    job_.ping_interval_s = params_.sse_ping_interval;
    job_.with_attach_block = attach_.sent;
    job_.writer = std::make_unique<ResponseWriter>(std::move(plan_));
    return std::move(job_);
  }

 private:
  Result<std::unique_ptr<GenerationRequest>> Make(const llama_tokens& prompt, int32_t choice) {
    task_params params = params_;
    if (params.sampling.seed != LLAMA_DEFAULT_SEED) {
      params.sampling.seed += static_cast<uint32_t>(choice);
    }
    auto request = std::make_unique<GenerationRequest>();
    try {
      request->sampler = model_.make_sampler(params.sampling, params.post_sampling_probs);
    } catch (const std::exception& error) {
      return InvalidRequest(std::string("Failed to initialize samplers: ") + error.what());
    }
    if (request->sampler == nullptr) return InvalidRequest("Failed to initialize samplers");
    request->sampler->AcceptPrompt(prompt);
    Fill(params, request.get());
    request->channel = job_.channel;
    request->index = job_.n_generations++;

    const bool shows_prompt = params.res_type == TASK_RESPONSE_TYPE_NONE || params.verbose;
    std::string text = shows_prompt ? common_detokenize(model_.vocab, prompt, true) : "";
    plan_.generations.push_back({.params = std::move(params),
                                 .n_prompt_tokens = static_cast<int32_t>(prompt.size()),
                                 .prompt_text = std::move(text)});
    return request;
  }

  void Fill(const task_params& params, GenerationRequest* request) const {
    request->n_predict = params.n_predict != -1 ? params.n_predict : model_.params.n_predict;
    request->stop_words = params.antiprompt;
    request->n_discard = params.n_discard;
    request->n_indent = params.n_indent;
    request->max_predict_ms = params.t_max_predict_ms;
    request->stream = params.stream;
    request->return_progress = params.return_progress;
    request->keep_tokens = params.return_tokens || params.sampling.n_probs > 0;
    request->cache_prompt = params.cache_prompt;
    request->keeps_state = endpoint_ != Endpoint::kInfill;
    request->special = model_.params.special;
    request->preserved_tokens = {params.sampling.preserved_tokens.begin(),
                                 params.sampling.preserved_tokens.end()};
    if (!params.lora.empty()) request->adapters = ToAdapterSet(model_, params.lora);
    request->params_json = safe_json_to_str(params.to_json(/*only_metrics=*/true));
    request->request_id = request_id_;
    request->completion_id = params.oaicompat_cmpl_id;
    request->reasoning_control = params.sampling.reasoning_control;
  }

  // llama-server counts one more than was asked for where the vocabulary puts a BOS in front.
  int32_t KeptByShift(const task_params& params, const llama_tokens& prompt) const {
    const auto n_keep =
        params.n_keep < 0 ? static_cast<int64_t>(prompt.size()) : int64_t{params.n_keep};
    const int64_t n_bos = llama_vocab_get_add_bos(model_.vocab) ? 1 : 0;
    return static_cast<int32_t>(
        std::min<int64_t>(n_keep + n_bos, std::numeric_limits<int32_t>::max()));
  }

  const ServedModel::State& model_;
  const Endpoint endpoint_;
  const task_params params_;
  const AttachFields& attach_;
  const common_chat_msg_delimiters delimiters_;
  const int32_t id_slot_;
  const std::string request_id_;
  ResponseWriter::Plan plan_;
  CompletionJob job_;
};

std::optional<Problem> CheckGenerations(const ServedModel::State& model, const AttachFields& attach,
                                        const task_params& params,
                                        const std::vector<llama_tokens>& prompts) {
  if (prompts.size() * static_cast<size_t>(params.n_cmpl) >
      static_cast<size_t>(model.max_generations)) {
    return InvalidRequest("Too many prompts and choices in one request: at most " +
                          std::to_string(model.max_generations));
  }
  if (!attach.spec.session_id.empty() && prompts.size() > 1) {
    return InvalidRequest("Field 'session_id': a session takes one prompt at a time");
  }
  const bool has_empty = std::any_of(prompts.begin(), prompts.end(),
                                     [](const llama_tokens& prompt) { return prompt.empty(); });
  if (has_empty && (attach.spec.any() || params.n_cmpl > 1)) {
    return InvalidRequest("The prompt is empty");
  }
  return std::nullopt;
}

Result<CompletionJob> BuildJob(const ServedModel::State& model, Endpoint endpoint,
                               const common_json& data, const AttachFields& attach,
                               const std::string& request_id) {
  Result<std::vector<llama_tokens>> prompts = TokenizePrompts(model.vocab, data.at("prompt"));
  if (!prompts.ok()) return prompts.problem();

  task_params params = server_schema::eval_llama_cmpl_schema(
      model.vocab, model.params, model.params.sampling.logit_bias_eog, data);
  params.res_type = ResponseType(endpoint);
  params.oaicompat_cmpl_id = gen_chatcmplid();
  params.oaicompat_model = model.name;
  if (std::optional<Problem> problem = CheckGenerations(model, attach, params, prompts.value())) {
    return *std::move(problem);
  }
  JobBuilder builder(model, endpoint, std::move(params), attach, MessageDelimiters(model, data),
                     json_value(data, "id_slot", -1), request_id);
  for (const llama_tokens& prompt : prompts.value()) {
    if (std::optional<Problem> problem = builder.AddPrompt(prompt)) return *std::move(problem);
  }
  return std::move(builder).Build();
}

}  // namespace

Result<CompletionJob> ParseCompletion(const ServedModel& model, Endpoint endpoint,
                                      const std::string& body, const HeaderMap& headers,
                                      const std::string& request_id) {
  Result<common_json> json = ParseBody(body);
  if (!json.ok()) return json.problem();
  Result<AttachFields> attach = ParseAttachFields(json.value(), headers);
  if (!attach.ok()) return attach.problem();
  if (std::optional<Problem> problem = CheckIntegers(json.value())) return *std::move(problem);
  return ClientFault<CompletionJob>([&]() -> Result<CompletionJob> {
    Result<common_json> data = NativeBody(model.state(), endpoint, std::move(json.value()));
    if (!data.ok()) return data.problem();
    return BuildJob(model.state(), endpoint, data.value(), attach.value(), request_id);
  });
}

}  // namespace polykv
