// The tokens that more messages add to a pool which was made of messages.
#pragma once

#include <span>

#include "api/protocol/json.h"
#include "api/protocol/messages_prefix.h"
#include "api/protocol/served_model.h"
#include "base/result.h"
#include "base/types.h"

namespace polykv {

// `parent` are the tokens that the appended ones will follow: the prefix that ComputeMessagesPrefix
// gave for some messages, which are not known any more. `body` has "append_messages" and, as they
// were given then, "tools" and whatever else shapes a prompt. The result's tokens are not empty;
// with those of `parent` in front they are the prefix of the messages with the appended ones.
// template_break counts from the start of `parent`.
//
// What the template writes is learned from other messages that end as the parent does. A 400 if
// the parent ends in no way in which messages end before these, and if the template does not only
// add to what it wrote before.
Result<MessagesPrefix> ComputeAppendedMessages(const ServedModel& model, const Json& body,
                                               std::span<const Token> parent);

}  // namespace polykv
