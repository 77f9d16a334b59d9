// Where the tokens of a new pool come from: the body of POST /polykv/pools and …/fork.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "api/protocol/json.h"
#include "api/services.h"
#include "base/result.h"
#include "base/types.h"

namespace polykv {

struct PoolSource {
  std::vector<Token> tokens;  // empty with from_session
  bool append = false;        // they follow the parent's first tokens
  SessionId from_session;     // empty: none
  // As MessagesPrefix has it.
  std::optional<int32_t> template_break = {};
};

enum class PoolKind { kRoot, kFork };  // a fork may give its tokens as what is appended

// Every field of a body that says what the pool is made of.
std::vector<std::string_view> PoolSourceFields(PoolKind kind);

// Exactly one source must be there. A Problem names the field. `parent_tokens`, for a fork, gives
// the parent's tokens up to where the fork leaves it; asked only where they are needed.
Result<PoolSource> ReadPoolSource(const ServedModel& model, const Json& body, PoolKind kind,
                                  const std::function<Result<std::vector<Token>>()>& parent_tokens);

}  // namespace polykv
