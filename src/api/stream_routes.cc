// Streams that a client comes back to: read again, looked up, stopped.
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "api/problem.h"
#include "api/protocol/json.h"
#include "api/routes.h"
#include "api/stream_store.h"

namespace polykv {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // how soon a client that has gone is noticed

int64_t UnixSeconds(const Services& services) { return services.unix_ms() / 1000; }

HttpResponse MissingId() {
  return ProblemResponse(InvalidRequest("Missing conversation id in path"));
}

// A number at the start of `text`, as llama-server reads it.
std::optional<size_t> Offset(const std::string& text) {
  if (text.empty()) return 0;
  char* end = nullptr;
  errno = 0;
  const unsigned long long offset = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str() || errno == ERANGE) return std::nullopt;
  return offset;
}

HttpResponse Replay(const Services& services, const HttpRequest& request) {
  const std::string id = request.Param("conv_id");
  if (id.empty()) return MissingId();
  const auto stream =
      services.streams->FindOrNull({request.caller.tenant, id}, UnixSeconds(services));
  if (stream == nullptr) {
    return ProblemResponse(
        {.status = 404, .type = "not_found_error", .message = "Stream not found or expired"});
  }
  const std::optional<size_t> from = Offset(request.Param("from"));
  if (!from.has_value()) return ProblemResponse(InvalidRequest("Invalid 'from' offset"));
  if (*from < stream->info().n_dropped) {
    return ProblemResponse(InvalidRequest("Stream offset lost, please restart"));
  }
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.next = [stream, offset = *from,
                   should_stop = request.should_stop](std::string* out) mutable {
    while (!should_stop()) {
      RecordedStream::Part part = stream->Read(offset, kSlice);
      offset += part.bytes.size();
      out->swap(part.bytes);
      if (!part.more || !out->empty()) return part.more;
    }
    return false;
  };
  return response;
}

HttpResponse Lookup(const Services& services, const HttpRequest& request) {
  Result<Json> body = ParseJsonObject(request.body);
  if (!body.ok()) return ProblemResponse(body.problem());
  const Json wanted = body.value().value("conversation_ids", Json());
  std::vector<std::string> ids;
  for (const Json& id : wanted.is_array() ? wanted : Json::array()) {
    if (id.is_string() && !id.get<std::string>().empty()) ids.push_back(id);
  }
  Json streams = Json::array();
  for (const StreamInfo& info :
       services.streams->Lookup(request.caller.tenant, ids, UnixSeconds(services))) {
    streams.push_back({{"conversation_id", info.conversation.id},
                       {"is_done", info.is_done},
                       {"total_bytes", info.n_bytes},
                       {"started_at", info.started_unix_s},
                       {"completed_at", info.completed_unix_s}});
  }
  HttpResponse response;
  response.body = JsonText(streams);
  return response;
}

HttpResponse Stop(const Services& services, const HttpRequest& request) {
  const std::string id = request.Param("conv_id");
  if (id.empty()) return MissingId();
  services.streams->Cancel({request.caller.tenant, id}, UnixSeconds(services));
  HttpResponse response;
  response.status = 204;
  response.content_type = "application/json";
  return response;
}

}  // namespace

void AddStreamRoutes(HttpServer* server, const Services* services) {
  server->Get("/v1/stream",
              [services](const HttpRequest& request) { return Replay(*services, request); });
  server->Delete("/v1/stream",
                 [services](const HttpRequest& request) { return Stop(*services, request); });
  server->Post("/v1/streams/lookup",
               [services](const HttpRequest& request) { return Lookup(*services, request); });
}

}  // namespace polykv
