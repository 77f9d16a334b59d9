#include "api/protocol/prompt_tokens.h"

#include <string>
#include <utility>

#include "mtmd-helper.h"

namespace polykv {
namespace {

std::string MissingInfillTokens(const llama_vocab* vocab) {
  std::string missing;
  if (llama_vocab_fim_pre(vocab) == LLAMA_TOKEN_NULL) missing += "prefix token is missing. ";
  if (llama_vocab_fim_suf(vocab) == LLAMA_TOKEN_NULL) missing += "suffix token is missing. ";
  if (llama_vocab_fim_mid(vocab) == LLAMA_TOKEN_NULL) missing += "middle token is missing. ";
  return missing;
}

std::optional<Problem> CheckInfillBody(const common_json& body) {
  if (body.contains("prompt") && !body.at("prompt").is_string()) {
    return InvalidRequest("\"prompt\" must be a string");
  }
  for (const char* name : {"input_prefix", "input_suffix"}) {
    if (!body.contains(name)) return InvalidRequest("\"" + std::string(name) + "\" is required");
  }
  if (!body.contains("input_extra")) return std::nullopt;
  const common_json& extra = body.at("input_extra");
  if (!extra.is_array()) {
    return InvalidRequest(
        "\"input_extra\" must be an array of {\"filename\": string, \"text\": string}");
  }
  for (const common_json& chunk : extra) {
    if (!chunk.is_object() || !chunk.contains("text") || !chunk.at("text").is_string()) {
      return InvalidRequest(
          "extra_context chunk must contain a \"text\" field with a string value");
    }
    if (chunk.contains("filename") && !chunk.at("filename").is_string()) {
      return InvalidRequest("extra_context chunk's \"filename\" field must be a string");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> CheckTokenIds(const llama_vocab* vocab, const common_json& prompt) {
  if (prompt.is_number()) {
    const double value = prompt.get<double>();
    if (value >= 0 && value < llama_vocab_n_tokens(vocab)) return std::nullopt;
    return InvalidRequest("Prompt contains invalid tokens");
  }
  if (prompt.is_object() && prompt.contains("prompt_string")) {
    return CheckTokenIds(vocab, prompt.at("prompt_string"));
  }
  if (!prompt.is_array()) return std::nullopt;
  for (const common_json& element : prompt) {
    if (std::optional<Problem> problem = CheckTokenIds(vocab, element)) return problem;
  }
  return std::nullopt;
}

Result<std::vector<llama_tokens>> TokenizePrompts(const llama_vocab* vocab,
                                                  const common_json& prompt, bool add_special) {
  if (std::optional<Problem> problem = CheckTokenIds(vocab, prompt)) return *std::move(problem);
  return ClientFault<std::vector<llama_tokens>>([&]() -> Result<std::vector<llama_tokens>> {
    const std::vector<server_tokens> inputs =
        tokenize_input_prompts(vocab, /*mctx=*/nullptr, prompt, add_special,
                               /*parse_special=*/true, mtmd_helper_init_opt_default());
    std::vector<llama_tokens> prompts;
    for (const server_tokens& input : inputs) prompts.push_back(input.get_tokens());
    return prompts;
  });
}

Result<common_json> InfillPrompt(const ServedModel::State& model, const common_json& body) {
  const std::string missing = MissingInfillTokens(model.vocab);
  if (!missing.empty()) {
    return Problem{.status = 501,
                   .type = "not_supported_error",
                   .message = "Infill is not supported by this model: " + missing};
  }
  if (std::optional<Problem> problem = CheckInfillBody(body)) return *std::move(problem);
  return ClientFault<common_json>([&]() -> Result<common_json> {
    const llama_tokens prompt =
        common_tokenize(model.vocab, json_value(body, "prompt", std::string()),
                        /*add_special=*/false, /*parse_special=*/true);
    return common_json(format_prompt_infill(
        model.vocab, body.at("input_prefix"), body.at("input_suffix"),
        json_value(body, "input_extra", common_json::array()), model.params.n_batch,
        model.params.n_predict, model.n_ctx_plain, model.params.spm_infill, prompt));
  });
}

}  // namespace polykv
