// The pool and session wishes of a completion request: top level of the body, else inside its
// "opencoti" object, else headers.
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "session/request.h"

class common_json;

namespace polykv {

using HeaderMap = std::map<std::string, std::string>;  // names in lower case

struct AttachFields {
  AttachSpec spec;
  bool sent = false;  // one of the fields was there: the response has an `opencoti` block
};

// Fields: pool_id, session_id, session_end, on_pool_miss, shared_prefix_n_tokens, overcommit
// (accepted, no effect). null counts as absent. Headers: X-Polykv-Pool, X-Polykv-Session. A 400
// names the field that is wrong.
Result<AttachFields> ParseAttachFields(const common_json& body, const HeaderMap& headers);

}  // namespace polykv
