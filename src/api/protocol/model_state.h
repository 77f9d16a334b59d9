// The inside of ServedModel, for this folder only.
#pragma once

#include <string>
#include <vector>

#include "api/protocol/served_model.h"
#include "common.h"
#include "llama.h"
#include "server-common.h"

namespace polykv {

struct ServedModel::State {
  const common_params& params;
  const llama_model* model;
  const llama_vocab* vocab;
  int32_t n_ctx_plain;
  int32_t max_generations;
  bool pooled_vectors;
  SamplerFactory make_sampler;
  std::string name;
  server_chat_params chat;
};

// The JSON object in `body`; a 400 if there is none.
Result<common_json> ParseBody(const std::string& body);

// What a client's fault is answered with: 400, but for media, which llama-server refuses with 500
// unless the model takes them.
Problem ClientProblem(const std::string& message);

// Runs `parse`, a client's fault by definition: what it throws becomes a ClientProblem.
template <typename T, typename Parse>
Result<T> ClientFault(Parse&& parse) {
  try {
    return std::forward<Parse>(parse)();
  } catch (const std::bad_alloc&) {
    return Problem{.status = 500, .type = "server_error", .message = "out of memory"};
  } catch (const std::exception& error) {
    return ClientProblem(error.what());
  }
}

}  // namespace polykv
