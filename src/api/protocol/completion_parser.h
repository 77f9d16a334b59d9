// From the body of a completion request, whatever its endpoint, to what the engine takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/protocol/attach_fields.h"
#include "api/protocol/response_writer.h"
#include "api/protocol/served_model.h"
#include "base/result.h"
#include "session/request.h"

namespace polykv {

enum class Endpoint {
  kCompletion,     // llama-server's /completion
  kOaiCompletion,  // /v1/completions
  kChat,           // /v1/chat/completions
  kResponses,      // /v1/responses
  kMessages,       // Anthropic's /v1/messages
  kInfill,
};

// One HTTP request: a generation per prompt and choice, prompts first.
struct CompletionJob {
  std::vector<std::unique_ptr<GenerationRequest>> requests;  // one per prompt; not empty
  // Of all of them and their choices; their indices are [0, n_generations).
  std::shared_ptr<GenerationChannel> channel = std::make_shared<GenerationChannel>();
  size_t n_generations = 0;
  std::unique_ptr<ResponseWriter> writer;
  bool stream = false;
  int32_t ping_interval_s = 30;    // below 1: no pings
  bool with_attach_block = false;  // pool or session fields were sent
};

// Parses, renders, tokenizes and makes the samplers; runs on an HTTP worker. Everything that is
// wrong with the request alone is a 400 here; what depends on the engine's state is the engine's
// answer.
Result<CompletionJob> ParseCompletion(const ServedModel& model, Endpoint endpoint,
                                      const std::string& body, const HeaderMap& headers,
                                      const std::string& request_id);

}  // namespace polykv
