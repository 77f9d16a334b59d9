// GET /polykv/tps: who gets how many tokens per second, once or again and again.
#include <memory>
#include <thread>

#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/views.h"

namespace polykv {
namespace {

constexpr std::chrono::milliseconds kSlice{50};  // how soon a client that has gone is noticed

std::string Text(const Services& services, const Caller& caller) {
  return JsonText(TpsJson(*services.Snapshot(), caller, services.Wall()));
}

HttpResponse Tps(const Services& services, const HttpRequest& request, StreamSeats* seats) {
  if (request.IsSet("once")) return JsonTextResponse(Text(services, request.caller));
  const std::shared_ptr<void> seat = seats->TakeOrNull();
  if (seat == nullptr) return ProblemResponse(StreamSeats::AllTaken());
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.next = [&services, caller = request.caller, seat, should_stop = request.should_stop,
                   next_us = TimeUs{0}](std::string* out) mutable {
    while (services.clock->NowUs() < next_us) {
      if (should_stop() || services.events->closed()) return false;
      std::this_thread::sleep_for(kSlice);
    }
    next_us = services.clock->NowUs() + services.tps_interval_us;
    *out = "data: " + Text(services, caller) + "\n\n";
    return true;
  };
  return response;
}

}  // namespace

void AddTpsRoutes(HttpServer* server, const Services* services,
                  const std::shared_ptr<StreamSeats>& seats) {
  server->Get("/polykv/tps", [services, seats](const HttpRequest& request) {
    return Tps(*services, request, seats.get());
  });
}

}  // namespace polykv
