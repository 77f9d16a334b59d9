// Embedding and rerank requests: from a body to prompts, and from vectors to a body, in
// llama-server's formats.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "api/protocol/served_model.h"
#include "base/result.h"
#include "engine/commands.h"

namespace polykv {

enum class EmbeddingEndpoint {
  kNative,  // llama-server's /embeddings
  kOai,     // /v1/embeddings
  kRerank,
};

struct EmbeddingJob {
  std::vector<std::vector<Token>> prompts;  // not empty, none is; every token in [0, n_vocab)
  // The response's body; `vectors` has one element per prompt. Once.
  std::function<std::string(const std::vector<PromptVectors>& vectors)> write_body;
};

// Runs on an HTTP worker. 501 if the server was not started for it, 400 if the request is wrong.
Result<EmbeddingJob> ParseEmbedding(const ServedModel& model, EmbeddingEndpoint endpoint,
                                    const std::string& body);

}  // namespace polykv
