// The routes that generate text.
#include <utility>

#include "api/generation_set.h"
#include "api/problem.h"
#include "api/protocol/completion_parser.h"
#include "api/routes.h"
#include "api/sse.h"
#include "api/stream_store.h"

namespace polykv {
namespace {

// How soon a client that has gone is noticed: before its request has started, and afterwards.
// Hundreds may wait to start, and each look takes time from those that run.
constexpr std::chrono::milliseconds kWaitingSlice{500};
constexpr std::chrono::milliseconds kSlice{100};

std::unique_ptr<GenerationSet> PostAll(CompletionJob* job, TenantId tenant, Engine* engine) {
  auto set = std::make_unique<GenerationSet>(job->channel, job->n_generations);
  std::vector<Command> commands;
  for (auto& request : job->requests) {
    request->tenant = tenant;
    for (auto& choice : request->choices) choice->tenant = tenant;
    commands.emplace_back(SubmitGeneration{.request = std::move(request)});
  }
  engine->Post(std::move(commands));
  return set;
}

void SetAttachHeaders(const AttachReport& report, HttpResponse* response) {
  if (report.sessions_remaining) {
    response->headers["X-Sessions-Remaining"] = std::to_string(*report.sessions_remaining);
  }
  if (report.pool_id != kNoPool) response->headers["X-Pool-Id"] = std::to_string(report.pool_id);
  response->headers["X-Cached-Prefix-Tokens"] = std::to_string(report.cache_n);
}

// Nobody reads it.
HttpResponse ClientIsGone() {
  HttpResponse response;
  response.status = 499;
  return response;
}

// Keeps what the stream sends and lets it outlive its client.
void Record(std::shared_ptr<StreamRecording> recording, HttpResponse* response) {
  response->outlives_client = true;
  response->next = [recording = std::move(recording),
                    next = std::move(response->next)](std::string* out) {
    const bool more = next(out);
    recording->Append(*out);
    return more;
  };
}

HttpResponse RespondWhole(CompletionJob job, std::unique_ptr<GenerationSet> set,
                          const HttpRequest& request) {
  std::vector<Finished> results(set->size());
  std::chrono::milliseconds slice = kWaitingSlice;
  while (!set->all_finished()) {
    if (request.should_stop()) return ClientIsGone();
    auto message = set->Next(slice);
    if (!message.has_value()) continue;
    slice = kSlice;
    if (const auto* problem = std::get_if<Problem>(&message->event))
      return ProblemResponse(*problem);
    if (auto* finished = std::get_if<Finished>(&message->event)) {
      results[message->index] = std::move(*finished);
    }
  }
  HttpResponse response;
  if (job.with_attach_block) {
    const AttachReport& report = results[0].report;
    SetAttachHeaders(report, &response);
    if (report.session_tps > 0) {
      response.headers["X-Session-Tps"] = std::to_string(report.session_tps);
    }
  }
  response.body = job.writer->Body(std::move(results));
  return response;
}

// The event before which nothing is sent, so that a refusal is a plain answer; nothing once
// `should_stop`.
std::optional<GenerationMessage> FirstEvent(GenerationSet* set,
                                            const std::function<bool()>& should_stop) {
  while (!should_stop()) {
    if (auto message = set->Next(kWaitingSlice)) return message;
  }
  return std::nullopt;
}

HttpResponse RespondStream(CompletionJob job, std::unique_ptr<GenerationSet> set,
                           const HttpRequest& request, const Clock* clock,
                           std::shared_ptr<StreamRecording> recording) {
  const auto cancelled = [recording] { return recording != nullptr && recording->cancelled(); };
  HttpResponse response;
  response.content_type = "text/event-stream";
  const auto first = FirstEvent(set.get(), [&] { return request.should_stop() || cancelled(); });
  if (!first.has_value()) return response;
  if (const auto* problem = std::get_if<Problem>(&first->event)) return ProblemResponse(*problem);

  if (const auto* started = std::get_if<Started>(&first->event); started && job.with_attach_block) {
    SetAttachHeaders(started->report, &response);
  }
  const std::function<bool()> should_stop =
      recording != nullptr ? std::function<bool()>(cancelled) : request.should_stop;
  auto stream = std::make_shared<CompletionStream>(std::move(set), std::move(job.writer),
                                                   job.ping_interval_s, should_stop, clock, *first);
  response.next = [stream](std::string* out) { return stream->Next(out); };
  if (recording != nullptr) Record(std::move(recording), &response);
  return response;
}

// Null without a conversation id.
std::shared_ptr<StreamRecording> OpenRecording(const Services& services,
                                               const HttpRequest& request) {
  const std::string id = request.Header("x-conversation-id");
  if (id.empty()) return nullptr;
  return std::make_shared<StreamRecording>(
      services.streams, Conversation{request.caller.tenant, id},
      [unix_ms = services.unix_ms] { return unix_ms() / 1000; });
}

HttpHandler Complete(const Services* services, Endpoint endpoint) {
  return [services, endpoint](const HttpRequest& request) {
    Result<CompletionJob> job = ParseCompletion(*services->model, endpoint, request.body,
                                                request.headers, request.Header("x-request-id"));
    if (!job.ok()) return ProblemResponse(job.problem());
    std::shared_ptr<StreamRecording> recording = OpenRecording(*services, request);
    std::unique_ptr<GenerationSet> set =
        PostAll(&job.value(), request.caller.tenant, services->engine);
    return job.value().stream ? RespondStream(std::move(job.value()), std::move(set), request,
                                              services->clock, std::move(recording))
                              : RespondWhole(std::move(job.value()), std::move(set), request);
  };
}

}  // namespace

void AddCompletionRoutes(ModelRoutes* server, const Services* services) {
  const std::pair<const char*, Endpoint> routes[] = {
      {"/completion", Endpoint::kCompletion},
      {"/completions", Endpoint::kCompletion},
      {"/v1/completions", Endpoint::kOaiCompletion},
      {"/chat/completions", Endpoint::kChat},
      {"/v1/chat/completions", Endpoint::kChat},
      {"/responses", Endpoint::kResponses},
      {"/v1/responses", Endpoint::kResponses},
      {"/v1/messages", Endpoint::kMessages},
      {"/infill", Endpoint::kInfill},
  };
  for (const auto& [path, endpoint] : routes) server->Post(path, Complete(services, endpoint));
}

}  // namespace polykv
