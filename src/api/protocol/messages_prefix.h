// The longest token prefix that every chat request which begins with the same messages will have.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "api/protocol/json.h"
#include "api/protocol/served_model.h"
#include "base/result.h"
#include "base/types.h"

namespace polykv {

struct MessagesPrefix {
  std::vector<Token> tokens;  // not empty
  // Set when the template ends the common part before the messages end (it writes something between
  // or before them that depends on what follows): the position of the break, tokens.size().
  std::optional<int32_t> template_break;
};

// `chat_body` has "messages" and may have "tools" and whatever else a chat request takes that
// shapes its prompt. Renders several requests that go on differently and cuts at the tokens common
// to all.
Result<MessagesPrefix> ComputeMessagesPrefix(const ServedModel& model, const Json& chat_body);

}  // namespace polykv
