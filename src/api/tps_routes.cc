// GET /polykv/tps: who gets how many tokens per second, once or again and again.
#include <atomic>
#include <memory>
#include <thread>

#include "api/json_response.h"
#include "api/problem.h"
#include "api/routes.h"
#include "api/views.h"

namespace polykv {
namespace {

constexpr int kMostStreams =
    64;  // of status; each is a thread that wakes up several times a second
constexpr std::chrono::milliseconds kSlice{50};  // how soon a client that has gone is noticed

std::shared_ptr<const EngineSnapshot> Snapshot(const Services& services) {
  const ModelGate::Glance glance = services.gate->Look();
  return glance.loaded ? services.engine->Snapshot() : services.asleep.snapshot;
}

std::string Text(const Services& services, const Caller& caller) {
  return JsonText(TpsJson(*Snapshot(services), caller, services.unix_ms()));
}

// One of the streams that may be open at once; none left: null.
std::shared_ptr<void> TakeSeat(const std::shared_ptr<std::atomic<int>>& n_open) {
  if (n_open->fetch_add(1) >= kMostStreams) {
    n_open->fetch_sub(1);
    return nullptr;
  }
  return {n_open.get(), [n_open](void*) { n_open->fetch_sub(1); }};
}

HttpResponse Tps(const Services& services, const HttpRequest& request,
                 const std::shared_ptr<std::atomic<int>>& n_open) {
  if (request.IsSet("once")) return JsonTextResponse(Text(services, request.caller));
  const std::shared_ptr<void> seat = TakeSeat(n_open);
  if (seat == nullptr) {
    return ProblemResponse(
        {.status = 503,
         .type = "too_many_streams",
         .message = std::to_string(kMostStreams) + " status streams are open already; use ?once=1",
         .retry_after_s = 5});
  }
  HttpResponse response;
  response.content_type = "text/event-stream";
  response.next = [&services, caller = request.caller, seat, should_stop = request.should_stop,
                   next_us = TimeUs{0}](std::string* out) mutable {
    while (services.clock->NowUs() < next_us) {
      if (should_stop()) return false;
      std::this_thread::sleep_for(kSlice);
    }
    next_us = services.clock->NowUs() + services.tps_interval_us;
    *out = "data: " + Text(services, caller) + "\n\n";
    return true;
  };
  return response;
}

}  // namespace

void AddTpsRoutes(HttpServer* server, const Services* services) {
  const auto n_open = std::make_shared<std::atomic<int>>(0);
  server->Get("/polykv/tps", [services, n_open](const HttpRequest& request) {
    return Tps(*services, request, n_open);
  });
}

}  // namespace polykv
