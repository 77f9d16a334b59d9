// Prompts of a request body as token ids, for this folder only.
#pragma once

#include <optional>
#include <vector>

#include "api/protocol/model_state.h"

namespace polykv {

// A 400 if any number in `prompt`, at whatever depth of lists and in a "prompt_string", is not a
// token of the vocabulary.
std::optional<Problem> CheckTokenIds(const llama_vocab* vocab, const common_json& prompt);

// The token lists of a "prompt" value: a string, tokens, both mixed, an object with
// "prompt_string", or a list of those. A 400 if one is malformed; one may be empty. `add_special`:
// text begins with the vocabulary's first token, if it has one.
Result<std::vector<llama_tokens>> TokenizePrompts(const llama_vocab* vocab,
                                                  const common_json& prompt,
                                                  bool add_special = true);

// The prompt of a fill-in-the-middle request, as token ids. 501 if the model has no such tokens.
Result<common_json> InfillPrompt(const ServedModel::State& model, const common_json& body);

}  // namespace polykv
