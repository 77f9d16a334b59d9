#include "api/protocol/appended_messages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/protocol/chat_turns.h"
#include "api/protocol/model_state.h"

namespace polykv {
namespace {

// Messages that end in some way, in place of those of the parent.
struct StandIn {
  Json messages;
  std::vector<Token> prefix;  // of the messages alone
  std::string ending;         // what the template writes after the last of them
};

constexpr const char* kQuestion = "Please.";
constexpr const char* kLastWords = "Ahead7x";

// The assistant calls a tool for each result at the front of `appended`, after `n_answered` others.
Json CallsFor(const Json& appended, const std::string& tool, size_t n_answered) {
  Json turn = CallTurn(tool, Json({{"what", kLastWords}}).dump());
  Json calls = Json::array();
  const Json any = turn["tool_calls"][0];
  for (size_t i = 0; i < n_answered; ++i) calls.push_back(any);
  for (const Json& message : appended) {
    if (Role(message) != "tool") break;
    calls.push_back(any);
    calls.back()["id"] = message.value("tool_call_id", any["id"]);
    calls.back()["function"]["name"] = message.value("name", any["function"]["name"]);
  }
  if (calls.empty()) calls.push_back(any);
  turn["tool_calls"] = std::move(calls);
  return turn;
}

// Lists of messages that end in every way in which a chat goes on with `appended`.
std::vector<Json> Endings(const Json& appended, const Json& tools) {
  const bool with_tools = !FirstToolName(tools).empty();
  const std::string tool = with_tools ? FirstToolName(tools) : "look_up";
  const Json call = CallsFor(appended, tool, 0);
  const Json called = CallsFor(appended, tool, 1);
  const Json result = ResultTurn(called["tool_calls"][0], kLastWords);
  const Json after_system = Json::array({Json({{"role", "system"}, {"content", kLastWords}})});
  const Json after_user = Json::array({UserTurn(kLastWords)});
  const Json after_answer = Json::array({UserTurn(kQuestion), AnswerTurn(kLastWords)});
  const Json after_call = Json::array({UserTurn(kQuestion), call});
  const Json after_result = Json::array({UserTurn(kQuestion), called, result});
  const std::string next = Role(appended[0]);
  if (next == "tool") return {after_call, after_result};
  std::vector<Json> endings = {after_user};
  if (next != "assistant") endings.insert(endings.end(), {after_system, after_answer});
  if (with_tools) endings.push_back(after_result);
  return endings;
}

std::string Text(const ServedModel::State& model, std::span<const Token> tokens) {
  std::string text;
  for (const Token token : tokens) text += common_token_to_piece(model.vocab, token);
  return text;
}

// Nothing if the template has no fixed text after these messages, or does not take them.
std::optional<StandIn> MakeStandIn(const ServedModel& model, Json chat, const Json& messages) {
  chat["messages"] = messages;
  Result<MessagesPrefix> prefix = ComputeMessagesPrefix(model, chat);
  if (!prefix.ok()) return std::nullopt;
  const std::string text = Text(model.state(), prefix.value().tokens);
  const size_t words = text.rfind(kLastWords);
  if (words == std::string::npos) return std::nullopt;
  std::string ending = text.substr(words + std::string_view(kLastWords).size());
  ending.erase(0, ending.find_first_not_of("\"'"));  // of an argument that is a string
  if (ending.empty()) return std::nullopt;
  return StandIn{.messages = messages,
                 .prefix = std::move(prefix.value().tokens),
                 .ending = std::move(ending)};
}

// Those that end as `parent` does, in as many bytes as any of them.
std::vector<StandIn> StandInsFor(const ServedModel& model, const Json& chat,
                                 const std::vector<Json>& endings, std::span<const Token> parent) {
  std::vector<StandIn> best;
  for (const Json& messages : endings) {
    std::optional<StandIn> stand_in = MakeStandIn(model, chat, messages);
    if (!stand_in.has_value()) continue;
    const size_t n_bytes = stand_in->ending.size();  // a token has at least one
    const std::string end = Text(model.state(), parent.last(std::min(n_bytes, parent.size())));
    if (!end.ends_with(stand_in->ending)) continue;
    const size_t n_best = best.empty() ? 0 : best[0].ending.size();
    if (n_bytes < n_best) continue;
    if (n_bytes > n_best) best.clear();
    best.push_back(*std::move(stand_in));
  }
  return best;
}

Problem Rewrites() {
  return InvalidRequest(
      "Field 'append_messages': with these the chat template writes what is before them in another "
      "way; give the whole list as 'messages'");
}

// What `appended` adds to the prefix of the stand-in's messages.
Result<MessagesPrefix> AddedTo(const ServedModel& model, Json chat, const Json& appended,
                               const StandIn& stand_in) {
  chat["messages"] = stand_in.messages;
  for (const Json& message : appended) chat["messages"].push_back(message);
  Result<MessagesPrefix> with = ComputeMessagesPrefix(model, chat);
  if (!with.ok()) return with;
  std::vector<Token>& tokens = with.value().tokens;
  const size_t n_before = stand_in.prefix.size();
  const bool adds = tokens.size() > n_before &&
                    std::equal(stand_in.prefix.begin(), stand_in.prefix.end(), tokens.begin());
  if (!adds) return Rewrites();
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n_before));
  return with;
}

Json AfterSystem(const Json& messages) {
  Json all = Json::array({Json({{"role", "system"}, {"content", "Behold."}})});
  for (const Json& message : messages) all.push_back(message);
  return all;
}

// The same, if a system message in front changes nothing in it.
Result<MessagesPrefix> Added(const ServedModel& model, const Json& chat, const Json& appended,
                             const StandIn& stand_in) {
  Result<MessagesPrefix> added = AddedTo(model, chat, appended, stand_in);
  if (!added.ok() || Role(stand_in.messages[0]) == "system") return added;
  const std::optional<StandIn> other = MakeStandIn(model, chat, AfterSystem(stand_in.messages));
  if (!other.has_value() || other->ending != stand_in.ending) return added;
  const Result<MessagesPrefix> check = AddedTo(model, chat, appended, *other);
  if (check.ok() && check.value().tokens != added.value().tokens) return Rewrites();
  return added;
}

}  // namespace

Result<MessagesPrefix> ComputeAppendedMessages(const ServedModel& model, const Json& body,
                                               std::span<const Token> parent) {
  Json chat = body;
  chat.erase("append_messages");
  const Json appended = body.value("append_messages", Json());
  if (!appended.is_array() || appended.empty()) {
    return InvalidRequest("Field 'append_messages': must be a list of at least one message");
  }
  const std::vector<Json> endings = Endings(appended, body.value("tools", Json()));
  Result<MessagesPrefix> added = InvalidRequest(
      "Field 'append_messages': the parent does not end where the chat template would write them; "
      "give the whole list as 'messages'");
  for (const StandIn& stand_in : StandInsFor(model, chat, endings, parent)) {
    Result<MessagesPrefix> result = Added(model, chat, appended, stand_in);
    if (result.ok() && added.ok() && result.value().tokens != added.value().tokens) {
      return Rewrites();
    }
    if (result.ok() || !added.ok()) added = std::move(result);
  }
  if (added.ok() && added.value().template_break.has_value()) {
    added.value().template_break =
        static_cast<int32_t>(parent.size() + added.value().tokens.size());
  }
  return added;
}

}  // namespace polykv
