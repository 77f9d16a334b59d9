#include "api/protocol/chat_turns.h"

#include <cstddef>
#include <utility>

namespace polykv {
namespace {

// Some templates ask whether a message is the last user's by comparing texts: no two are equal.
constexpr const char* kFirstText = "Well";
constexpr const char* kSecondText = "So it is";
constexpr const char* kThirdText = "And then";

const Json* Find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string Text(const Json* object, const char* name) {
  const Json* value = object == nullptr ? nullptr : Find(*object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::vector<Json> Results(const std::vector<Json>& calls, const std::string& text) {
  std::vector<Json> turns;
  for (const Json& call : calls) turns.push_back(ResultTurn(call, text));
  return turns;
}

std::vector<Json> Joined(std::vector<Json> turns, const std::vector<Json>& more) {
  turns.insert(turns.end(), more.begin(), more.end());
  return turns;
}

enum class Next { kResults, kAnswer, kUser };

std::vector<Json> NextTurns(Next next, const std::vector<Json>& calls, const std::string& text) {
  switch (next) {
    case Next::kResults:
      return Results(calls, text);
    case Next::kAnswer:
      return {AnswerTurn(text), UserTurn(kFirstText)};
    case Next::kUser:
      break;
  }
  return {UserTurn(text)};
}

void AddAfterResults(const std::vector<Json>& calls, std::vector<Continuation>* all) {
  // Some templates write what is JSON in another way.
  for (const char* json : {"7", R"({"a":7})"}) all->push_back({.turns = Results(calls, json)});
  if (calls.size() > 1) {
    all->push_back({.turns = Results({calls.rbegin(), calls.rend()}, kFirstText)});
  }
  all->push_back({.turns = Joined(Results(calls, kFirstText),
                                  {AnswerTurn(kSecondText), UserTurn(kThirdText)})});
}

void AddInsteadOfAnswer(const std::string& tool, const std::string& probe,
                        std::vector<Continuation>* all) {
  all->push_back({.turns = {UserTurn(probe)}});
  all->push_back({.turns = {}});
  if (tool.empty()) return;
  Json call = CallTurn(tool, "{}");
  const Json result = ResultTurn(call["tool_calls"][0], kFirstText);
  all->push_back({.turns = {call, result}});
  call["reasoning_content"] = kSecondText;
  all->push_back({.turns = {std::move(call), result}});
}

void AddAfterUser(const std::string& tool, std::vector<Continuation>* all) {
  all->push_back({.turns = {UserTurn(kFirstText), AnswerTurn(kSecondText), UserTurn(kThirdText)}});
  if (tool.empty()) return;
  const Json call = CallTurn(tool, "{}");
  all->push_back(
      {.turns = {UserTurn(kFirstText), call, ResultTurn(call["tool_calls"][0], kSecondText)}});
}

}  // namespace

std::string Role(const Json& message) { return Text(&message, "role"); }

std::vector<Json> OpenCalls(const Json& messages) {
  std::ptrdiff_t n_results = 0;
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    if (Role(*message) == "tool") {
      ++n_results;
      continue;
    }
    const Json* calls = Find(*message, "tool_calls");
    if (calls == nullptr || !calls->is_array()) return {};
    if (n_results >= static_cast<std::ptrdiff_t>(calls->size())) return {};
    return {calls->begin() + n_results, calls->end()};
  }
  return {};
}

std::string FirstToolName(const Json& tools) {
  if (!tools.is_array() || tools.empty()) return "";
  return Text(Find(tools[0], "function"), "name");
}

Json UserTurn(const std::string& text) { return {{"role", "user"}, {"content", text}}; }

Json AnswerTurn(const std::string& text) { return {{"role", "assistant"}, {"content", text}}; }

Json CallTurn(const std::string& tool, const std::string& arguments) {
  // Some templates want nine letters and digits as an id.
  const Json call = {{"id", "call00007"},
                     {"type", "function"},
                     {"function", {{"name", tool}, {"arguments", arguments}}}};
  return {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}};
}

Json ResultTurn(const Json& call, const std::string& text) {
  Json turn = {{"role", "tool"}, {"content", text}};
  if (const Json* id = Find(call, "id"); id != nullptr) turn["tool_call_id"] = *id;
  if (std::string name = Text(Find(call, "function"), "name"); !name.empty()) {
    turn["name"] = std::move(name);
  }
  return turn;
}

std::vector<Continuation> Continuations(const Json& messages, const Json& tools,
                                        const std::string& probe) {
  const std::vector<Json> calls = OpenCalls(messages);
  const std::string role = Role(messages.back());
  const bool answers = role == "user" || role == "tool";
  const Next next = !calls.empty() ? Next::kResults : answers ? Next::kAnswer : Next::kUser;
  std::vector<Continuation> all = {{.turns = NextTurns(next, calls, probe)}};
  if (next == Next::kResults) AddAfterResults(calls, &all);
  if (next == Next::kAnswer) AddInsteadOfAnswer(FirstToolName(tools), probe, &all);
  if (next == Next::kUser) AddAfterUser(FirstToolName(tools), &all);
  all.push_back(
      {.turns = NextTurns(next, calls, kLeadingSpace + probe), .generation_prompt = false});
  return all;
}

}  // namespace polykv
