#include "api/protocol/messages_prefix.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "api/protocol/model_state.h"
#include "server-common.h"

namespace polykv {
namespace {

// How the next turn may begin: first bytes that merge differently with the token before them.
constexpr const char* kProbeTexts[] = {"a7f3", "Zq ", "0", " x", "\n\ny", "<w", "\xE6\x97\xA5"};

bool CallsTool(const Json& message) {
  return message.is_object() && message.contains("tool_calls") &&
         message["tool_calls"].is_array() && !message["tool_calls"].empty();
}

std::string Role(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"].is_string()
             ? message["role"].get<std::string>()
             : "";
}

Json ProbeTurn(const Json& last, const std::string& text) {
  if (!CallsTool(last)) return {{"role", "user"}, {"content", text}};
  Json turn = {{"role", "tool"}, {"content", text}};
  const Json& call = last["tool_calls"].back();
  if (call.is_object() && call.contains("id")) turn["tool_call_id"] = call["id"];
  if (call.is_object() && call.contains("function") && call["function"].is_object() &&
      call["function"].contains("name")) {
    turn["name"] = call["function"]["name"];
  }
  return turn;
}

std::string Render(const ServedModel::State& model, const Json& body) {
  common_json chat = common_json::parse(JsonText(body));
  std::vector<raw_buffer> files;
  return oaicompat_chat_params_parse(chat, model.chat, files).at("prompt").get<std::string>();
}

// The prompts of requests that begin with the messages of `body`.
std::vector<std::string> RenderProbes(const ServedModel::State& model, Json body) {
  const Json messages = body["messages"];
  const Json& last = messages.back();
  std::vector<std::string> texts;
  const auto add = [&](bool generation_prompt) {
    body["add_generation_prompt"] = generation_prompt;
    std::string text = Render(model, body);
    // What only extends another render adds no difference.
    const bool extends = !texts.empty() && text.starts_with(texts.back());
    if (!extends) texts.push_back(std::move(text));
  };
  for (const char* probe : kProbeTexts) {
    body["messages"] = messages;
    body["messages"].push_back(ProbeTurn(last, probe));
    add(false);
    add(true);
  }
  if (Role(last) == "user" || Role(last) == "tool") {  // the answer may come right away
    body["messages"] = messages;
    add(true);
  }
  return texts;
}

template <typename Sequence>
size_t CommonPrefix(const Sequence& a, const Sequence& b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Text of a message, the last of its parts; empty if it has none.
std::string LastText(const Json& message) {
  if (!message.is_object() || !message.contains("content")) return "";
  const Json& content = message["content"];
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array() || content.empty()) return "";
  const Json& part = content.back();
  return part.is_object() && part.contains("text") && part["text"].is_string()
             ? part["text"].get<std::string>()
             : "";
}

// Where the messages end in `render`, the prompt of a request that goes on with the first probe:
// after the last message's own text, or where the render of the messages alone goes another way.
size_t MessagesEnd(const ServedModel::State& model, const Json& body, const std::string& render) {
  const size_t probe = render.rfind(kProbeTexts[0]);
  const std::string text = LastText(body["messages"].back());
  const std::string_view wanted = Trim(text);
  if (!wanted.empty() && probe != std::string::npos) {
    const size_t found = render.rfind(wanted, probe);
    if (found != std::string::npos) return found + wanted.size();
  }
  Json alone = body;
  alone["add_generation_prompt"] = false;
  try {
    return CommonPrefix(render, Render(model, alone));
  } catch (const std::exception&) {
    return 0;  // the template refuses to end there: nothing to compare with
  }
}

Result<MessagesPrefix> Compute(const ServedModel::State& model, const Json& body) {
  const std::vector<std::string> texts = RenderProbes(model, body);
  const auto tokenize = [&model](const std::string& text) {
    return common_tokenize(model.vocab, text, /*add_special=*/true, /*parse_special=*/true);
  };
  MessagesPrefix prefix;
  prefix.tokens = tokenize(texts[0]);
  size_t common = prefix.tokens.size();
  for (size_t i = 1; i < texts.size(); ++i) {
    common = std::min(common, CommonPrefix(prefix.tokens, tokenize(texts[i])));
  }
  if (common == 0) return InvalidRequest("The chat template gives these messages no fixed prefix");

  // The token at the end may be cut differently in the whole, so one token of slack.
  const llama_tokens whole = tokenize(texts[0].substr(0, MessagesEnd(model, body, texts[0])));
  if (common + 1 < CommonPrefix(whole, prefix.tokens)) {
    prefix.template_break = static_cast<int32_t>(common);
  }
  prefix.tokens.resize(common);
  return prefix;
}

}  // namespace

Result<MessagesPrefix> ComputeMessagesPrefix(const ServedModel& model, const Json& chat_body) {
  const auto messages = chat_body.find("messages");
  if (messages == chat_body.end() || !messages->is_array() || messages->empty()) {
    return InvalidRequest("Field 'messages': must be a list of at least one message");
  }
  return ClientFault<MessagesPrefix>([&] { return Compute(model.state(), chat_body); });
}

}  // namespace polykv
