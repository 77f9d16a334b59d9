// The turns of a chat: what a list of messages ends with, and what later requests may add to it.
#pragma once

#include <string>
#include <vector>

#include "api/protocol/json.h"

namespace polykv {

// Empty if `message` is no object with a role.
std::string Role(const Json& message);

// The calls in the last messages that have no result yet: elements of "tool_calls".
std::vector<Json> OpenCalls(const Json& messages);

// The name of the first of `tools` (a request's list, or null); empty if there is none.
std::string FirstToolName(const Json& tools);

Json UserTurn(const std::string& text);
Json AnswerTurn(const std::string& text);
// An assistant's turn with one call; `arguments` is the text of a JSON object.
Json CallTurn(const std::string& tool, const std::string& arguments);
// Answers `call`, an element of an assistant's "tool_calls".
Json ResultTurn(const Json& call, const std::string& text);

inline constexpr const char* kLeadingSpace = "\n\n";  // which some templates trim

struct Continuation {
  std::vector<Json> turns;  // to be added to the messages; may be none
  bool generation_prompt = true;
};

// How requests go on that begin with `messages` (not empty) and have `tools`: with the next user's
// turn, the answer, or calls and their results, as the last message leaves it open. Where a text
// comes first, it is `probe`; so in the first of them. The last is the first without a generation
// prompt and with kLeadingSpace before `probe`. A template may refuse some.
std::vector<Continuation> Continuations(const Json& messages, const Json& tools,
                                        const std::string& probe);

}  // namespace polykv
