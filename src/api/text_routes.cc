// The routes that only turn text into something else.
#include "api/problem.h"
#include "api/protocol/text_tools.h"
#include "api/routes.h"

namespace polykv {
namespace {

HttpResponse Answer(Result<std::string> body) {
  if (!body.ok()) return ProblemResponse(body.problem());
  HttpResponse response;
  response.body = std::move(body.value());
  return response;
}

}  // namespace

void AddTextRoutes(ModelRoutes* server, const Services* services) {
  server->Post("/tokenize", [services](const HttpRequest& request) {
    return Answer(TokenizeBody(*services->model, request.body));
  });
  server->Post("/detokenize", [services](const HttpRequest& request) {
    return Answer(DetokenizeBody(*services->model, request.body));
  });
  server->Post("/apply-template", [services](const HttpRequest& request) {
    return Answer(ApplyTemplateBody(*services->model, request.body));
  });
  const std::pair<const char*, Endpoint> counters[] = {
      {"/chat/completions/input_tokens", Endpoint::kChat},
      {"/v1/chat/completions/input_tokens", Endpoint::kChat},
      {"/responses/input_tokens", Endpoint::kResponses},
      {"/v1/responses/input_tokens", Endpoint::kResponses},
      {"/v1/messages/count_tokens", Endpoint::kMessages},
  };
  for (const auto& [path, endpoint] : counters) {
    server->Post(path, [services, counted = endpoint](const HttpRequest& request) {
      return Answer(CountTokensBody(*services->model, counted, request.body));
    });
  }
}

}  // namespace polykv
