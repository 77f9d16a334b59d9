// The routes that turn text into vectors or scores.
#include <utility>

#include "api/problem.h"
#include "api/protocol/embedding_parser.h"
#include "api/routes.h"
#include "api/state_change.h"

namespace polykv {
namespace {

HttpResponse Embed(const Services& services, EmbeddingEndpoint endpoint,
                   const HttpRequest& request) {
  Result<EmbeddingJob> job = ParseEmbedding(*services.model, endpoint, request.body);
  if (!job.ok()) return ProblemResponse(job.problem());
  SubmitEmbedding command{.prompts = std::move(job.value().prompts)};
  const auto channel = command.channel;
  services.engine->Post(std::move(command));
  const auto answer = Await(channel.get(), request);
  if (!answer.has_value()) return {};
  if (!answer->ok()) return ProblemResponse(answer->problem());
  HttpResponse response;
  response.body = job.value().write_body(answer->value());
  return response;
}

}  // namespace

void AddEmbeddingRoutes(ModelRoutes* server, const Services* services) {
  const std::pair<const char*, EmbeddingEndpoint> routes[] = {
      {"/embedding", EmbeddingEndpoint::kNative},    {"/embeddings", EmbeddingEndpoint::kNative},
      {"/v1/embeddings", EmbeddingEndpoint::kOai},   {"/rerank", EmbeddingEndpoint::kRerank},
      {"/reranking", EmbeddingEndpoint::kRerank},    {"/v1/rerank", EmbeddingEndpoint::kRerank},
      {"/v1/reranking", EmbeddingEndpoint::kRerank},
  };
  for (const auto& [path, endpoint] : routes) {
    server->Post(path, [services, wanted = endpoint](const HttpRequest& request) {
      return Embed(*services, wanted, request);
    });
  }
}

}  // namespace polykv
