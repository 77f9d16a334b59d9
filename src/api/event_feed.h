// The event log as server-sent events for one client.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "api/http_server.h"
#include "api/services.h"
#include "api/views.h"

namespace polykv {

// Names an event to clients, and the log that it is in: after a restart an id of before is unknown.
std::string EventId(int64_t log_id, uint64_t number);
// Nothing if it is not of this log.
std::optional<uint64_t> ParseEventId(int64_t log_id, const std::string& id);

Json EventJson(const Event& event, const Services& services);

// Called by one HTTP worker.
class EventFeed {
 public:
  // `after`: the event that the client has seen last; none: it knows nothing yet. `should_stop` is
  // asked several times a second.
  EventFeed(const Services* services, Caller caller, std::function<bool()> should_stop,
            std::optional<uint64_t> after, bool resumes)
      : services_(services),
        caller_(caller),
        should_stop_(std::move(should_stop)),
        position_(after),
        reset_reason_(resumes ? "gap" : "begin"),
        last_output_us_(services->clock->NowUs()) {}

  // HttpResponse::next: what has happened since, a ping after 15 s of silence, or the end.
  bool Next(std::string* out);

 private:
  bool Advance(std::string* out);
  // The whole picture, from which the following events go on.
  std::string Reset();

  const Services* const services_;
  const Caller caller_;
  const std::function<bool()> should_stop_;
  std::optional<uint64_t> position_;  // number of the last event looked at; none: reset is due
  const char* reset_reason_;
  TimeUs last_output_us_;
};

}  // namespace polykv
