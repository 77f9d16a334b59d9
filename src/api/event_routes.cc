// GET /polykv/events: what happens to pools, sessions and admissions.
#include <memory>

#include "api/event_feed.h"
#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"

namespace polykv {
namespace {

// What the client has seen last; empty: it did not say.
std::string LastEventId(const HttpRequest& request) {
  const std::string id = request.Header("last-event-id");
  return id.empty() ? request.Param("last_event_id") : id;
}

// Everything after `number`, or as much of it as there still is.
HttpResponse ListOnce(const Services& services, const Caller& caller,
                      std::optional<uint64_t> number, bool resumes) {
  EventLog::Part part = number ? services.events->After(*number, std::chrono::milliseconds(0))
                               : services.events->All();
  const bool gap = resumes && (part.gap || !number);
  if (part.gap) part = services.events->All();
  const uint64_t newest = part.events.empty() ? number.value_or(0) : part.events.back()->number;
  Json events = Json::array();
  for (const auto& event : part.events) {
    if (!caller.Sees(event->tenant)) continue;
    events.push_back(EventJson(*event, services));
  }
  return JsonResponse({{"ts", services.unix_ms()},
                       {"last_event_id", EventId(services.event_log_id, newest)},
                       {"gap", gap},
                       {"events", std::move(events)}});
}

HttpResponse Events(const Services& services, const HttpRequest& request, StreamSeats* seats) {
  const std::string last_id = LastEventId(request);
  const std::optional<uint64_t> number = ParseEventId(services.event_log_id, last_id);
  const bool resumes = !last_id.empty();
  if (request.IsSet("once")) return ListOnce(services, request.caller, number, resumes);
  const std::shared_ptr<void> seat = seats->TakeOrNull();
  if (seat == nullptr) return ProblemResponse(StreamSeats::AllTaken());
  const auto feed =
      std::make_shared<EventFeed>(&services, request.caller, request.should_stop, number, resumes);
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.next = [feed, seat](std::string* out) { return feed->Next(out); };
  return response;
}

}  // namespace

void AddEventRoutes(HttpServer* server, const Services* services,
                    const std::shared_ptr<StreamSeats>& seats) {
  server->Get("/polykv/events", [services, seats](const HttpRequest& request) {
    return Events(*services, request, seats.get());
  });
}

}  // namespace polykv
