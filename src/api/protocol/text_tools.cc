#include "api/protocol/text_tools.h"

#include <optional>
#include <utility>

#include "api/protocol/model_state.h"
#include "api/protocol/prompt_tokens.h"
#include "base/check.h"
#include "server-chat.h"

namespace polykv {
namespace {

common_json PieceJson(const std::string& piece) {
  if (IsUtf8(piece)) return piece;
  common_json bytes = common_json::array();
  for (const char byte : piece) bytes.push_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return bytes;
}

common_json TokensJson(const llama_vocab* vocab, const llama_tokens& tokens, bool with_pieces) {
  if (!with_pieces) return tokens;
  common_json array = common_json::array();
  for (const llama_token token : tokens) {
    array.push_back({{"id", token}, {"piece", PieceJson(common_token_to_piece(vocab, token))}});
  }
  return array;
}

common_json RenderedPrompt(const ServedModel::State& model, common_json chat_body) {
  std::vector<raw_buffer> files;
  return oaicompat_chat_params_parse(chat_body, model.chat, files).at("prompt");
}

std::optional<Problem> CheckContent(const common_json& content) {
  if (content.is_string()) return std::nullopt;
  bool ok = content.is_array();
  if (ok) {
    for (const common_json& element : content)
      ok = ok && (element.is_string() || element.is_number());
  }
  if (ok) return std::nullopt;
  return InvalidRequest("Field 'content': must be a string or a list of strings and tokens");
}

}  // namespace

Result<std::string> TokenizeBody(const ServedModel& model, const std::string& body) {
  Result<common_json> parsed = ParseBody(body);
  if (!parsed.ok()) return parsed.problem();
  const common_json& json = parsed.value();
  common_json tokens = common_json::array();
  if (json.contains("content")) {
    const llama_vocab* vocab = model.state().vocab;
    const common_json& content = json.at("content");
    if (std::optional<Problem> problem = CheckContent(content)) return *std::move(problem);
    if (std::optional<Problem> problem = CheckTokenIds(vocab, content)) return *std::move(problem);
    tokens = TokensJson(vocab,
                        tokenize_mixed(vocab, content, json_value(json, "add_special", false),
                                       json_value(json, "parse_special", true)),
                        json_value(json, "with_pieces", false));
  }
  return safe_json_to_str({{"tokens", std::move(tokens)}});
}

Result<std::string> DetokenizeBody(const ServedModel& model, const std::string& body) {
  Result<common_json> parsed = ParseBody(body);
  if (!parsed.ok()) return parsed.problem();
  const common_json& json = parsed.value();
  std::string content;
  if (json.contains("tokens")) {
    const common_json& tokens = json.at("tokens");
    const llama_vocab* vocab = model.state().vocab;
    if (!tokens.is_array()) return InvalidRequest("Field 'tokens': must be a list of token ids");
    for (const common_json& token : tokens) {
      if (!token.is_number()) return InvalidRequest("Field 'tokens': must be a list of token ids");
    }
    if (std::optional<Problem> problem = CheckTokenIds(vocab, tokens)) return *std::move(problem);
    content = tokens_to_str(vocab, tokens.get<llama_tokens>());
  }
  return safe_json_to_str({{"content", std::move(content)}});
}

Result<std::string> ApplyTemplateBody(const ServedModel& model, const std::string& body) {
  Result<common_json> parsed = ParseBody(body);
  if (!parsed.ok()) return parsed.problem();
  return ClientFault<std::string>([&] {
    return safe_json_to_str({{"prompt", RenderedPrompt(model.state(), std::move(parsed.value()))}});
  });
}

Result<std::string> CountTokensBody(const ServedModel& model, Endpoint endpoint,
                                    const std::string& body) {
  POLYKV_CHECK(endpoint == Endpoint::kChat || endpoint == Endpoint::kResponses ||
               endpoint == Endpoint::kMessages);
  Result<common_json> parsed = ParseBody(body);
  if (!parsed.ok()) return parsed.problem();
  return ClientFault<std::string>([&] {
    common_json chat = std::move(parsed.value());
    if (endpoint == Endpoint::kResponses) chat = server_chat_convert_responses_to_chatcmpl(chat);
    if (endpoint == Endpoint::kMessages) chat = server_chat_convert_anthropic_to_oai(chat);
    const common_json prompt = RenderedPrompt(model.state(), std::move(chat));
    const size_t count = tokenize_mixed(model.state().vocab, prompt, true, true).size();
    common_json response = {{"input_tokens", count}};
    if (endpoint != Endpoint::kMessages) response["object"] = "response.input_tokens";
    return safe_json_to_str(response);
  });
}

Result<std::vector<Token>> TokenizePrompt(const ServedModel& model, const Json& prompt,
                                          bool add_special) {
  if (!prompt.is_string() && !prompt.is_array()) {
    return InvalidRequest("Field 'prompt': must be a string or a list of strings and tokens");
  }
  const common_json value = common_json::parse(JsonText(prompt));
  Result<std::vector<llama_tokens>> prompts =
      TokenizePrompts(model.state().vocab, value, add_special);
  if (!prompts.ok()) return prompts.problem();
  if (prompts.value().size() != 1) return InvalidRequest("Field 'prompt': exactly one is needed");
  if (prompts.value()[0].empty()) return InvalidRequest("Field 'prompt': is empty");
  return std::move(prompts.value()[0]);
}

}  // namespace polykv
