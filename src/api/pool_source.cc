#include "api/pool_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "api/protocol/appended_messages.h"
#include "api/protocol/messages_prefix.h"
#include "api/protocol/text_tools.h"

namespace polykv {
namespace {

// What shapes the prompt of a chat request beside its messages.
constexpr const char* kChatFields[] = {"tools", "tool_choice", "parallel_tool_calls",
                                       "chat_template_kwargs", "reasoning_effort"};

Result<PoolSource> FromTokens(const ServedModel& model, const char* field, const Json& tokens) {
  const bool is_list = tokens.is_array() && !tokens.empty() &&
                       std::all_of(tokens.begin(), tokens.end(),
                                   [](const Json& token) { return token.is_number_integer(); });
  if (!is_list) {
    return InvalidRequest(std::string("Field '") + field +
                          "': must be a list of at least one token id");
  }
  Result<std::vector<Token>> checked = TokenizePrompt(model, tokens);
  if (!checked.ok()) return checked.problem();
  return PoolSource{.tokens = std::move(checked.value())};
}

Result<PoolSource> FromPrompt(const ServedModel& model, const char* field, const Json& prompt,
                              bool add_special) {
  if (!prompt.is_string()) {
    return InvalidRequest(std::string("Field '") + field + "': must be a string");
  }
  Result<std::vector<Token>> tokens = TokenizePrompt(model, prompt, add_special);
  if (!tokens.ok()) return tokens.problem();
  return PoolSource{.tokens = std::move(tokens.value())};
}

// The fields of `body` that make a chat request with its messages in `field`.
Json ChatBody(const Json& body, const char* field) {
  Json chat = Json::object();
  chat[field] = body[field];
  for (const char* shaping : kChatFields) {
    if (body.contains(shaping)) chat[shaping] = body[shaping];
  }
  return chat;
}

Result<PoolSource> FromPrefix(Result<MessagesPrefix> prefix) {
  if (!prefix.ok()) return prefix.problem();
  return PoolSource{.tokens = std::move(prefix.value().tokens),
                    .template_break = prefix.value().template_break};
}

Result<PoolSource> FromSession(const Json& session) {
  if (!session.is_string() || !IsName(session.get<std::string>())) {
    return InvalidRequest(
        "Field 'from_session': must be 1 to 256 bytes of UTF-8 without control characters");
  }
  return PoolSource{.from_session = session.get<std::string>()};
}

std::vector<const char*> Sources(PoolKind kind) {
  std::vector<const char*> sources = {"tokens", "prompt", "messages", "from_session"};
  if (kind == PoolKind::kFork) {
    sources.insert(sources.end(), {"append_tokens", "append_prompt", "append_messages"});
  }
  return sources;
}

Problem NotOne(PoolKind kind) {
  std::string names;
  for (const char* source : Sources(kind)) {
    names += (names.empty() ? "'" : ", '") + std::string(source) + "'";
  }
  return InvalidRequest("Exactly one of these fields is needed: " + names);
}

}  // namespace

std::vector<std::string_view> PoolSourceFields(PoolKind kind) {
  std::vector<std::string_view> fields(std::begin(kChatFields), std::end(kChatFields));
  for (const char* source : Sources(kind)) fields.emplace_back(source);
  return fields;
}

Result<PoolSource> ReadPoolSource(
    const ServedModel& model, const Json& body, PoolKind kind,
    const std::function<Result<std::vector<Token>>()>& parent_tokens) {
  const char* given = nullptr;
  for (const char* source : Sources(kind)) {
    if (!body.contains(source) || body[source].is_null()) continue;
    if (given != nullptr) return NotOne(kind);
    given = source;
  }
  if (given == nullptr) return NotOne(kind);
  const std::string_view name = given;
  if (name == "tokens") return FromTokens(model, given, body[given]);
  if (name == "prompt") return FromPrompt(model, given, body[given], /*add_special=*/true);
  if (name == "messages") return FromPrefix(ComputeMessagesPrefix(model, ChatBody(body, given)));
  if (name == "from_session") return FromSession(body[given]);
  Result<PoolSource> source = InvalidRequest("");
  if (name == "append_tokens") {
    source = FromTokens(model, given, body[given]);
  } else if (name == "append_prompt") {
    source = FromPrompt(model, given, body[given], /*add_special=*/false);
  } else {
    const Result<std::vector<Token>> parent = parent_tokens();
    if (!parent.ok()) return parent.problem();
    source = FromPrefix(ComputeAppendedMessages(model, ChatBody(body, given), parent.value()));
  }
  if (source.ok()) source.value().append = true;
  return source;
}

}  // namespace polykv
