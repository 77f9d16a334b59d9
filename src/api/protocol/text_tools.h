// The routes that only turn text into something else: no engine, no KV.
#pragma once

#include <string>
#include <vector>

#include "api/protocol/completion_parser.h"
#include "api/protocol/json.h"
#include "api/protocol/served_model.h"
#include "base/result.h"
#include "base/types.h"

namespace polykv {

// Each takes a request body and gives a response body, in llama-server's formats.
Result<std::string> TokenizeBody(const ServedModel& model, const std::string& body);
Result<std::string> DetokenizeBody(const ServedModel& model, const std::string& body);
Result<std::string> ApplyTemplateBody(const ServedModel& model, const std::string& body);

// REQUIRES: endpoint is kChat, kResponses or kMessages.
Result<std::string> CountTokensBody(const ServedModel& model, Endpoint endpoint,
                                    const std::string& body);

// One prompt as a completion request would see it: `prompt` is a string, tokens or both mixed.
// Without `add_special` a string gets no token at its beginning that is not in the text.
Result<std::vector<Token>> TokenizePrompt(const ServedModel& model, const Json& prompt,
                                          bool add_special = true);

}  // namespace polykv
