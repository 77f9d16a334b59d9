#include "api/event_feed.h"

#include <charconv>
#include <chrono>
#include <utility>

#include "api/problem.h"

namespace polykv {
namespace {

constexpr std::chrono::milliseconds kSlice{100};  // how soon a client that has gone is noticed
constexpr TimeUs kPingUs = 15'000'000;

std::string SseText(const std::string& id, std::string_view name, const Json& data) {
  return "id: " + id + "\nevent: " + std::string(name) + "\ndata: " + JsonText(data) + "\n\n";
}

}  // namespace

std::string EventId(int64_t log_id, uint64_t number) {
  return std::to_string(log_id) + "-" + std::to_string(number);
}

std::optional<uint64_t> ParseEventId(int64_t log_id, const std::string& id) {
  const std::string prefix = std::to_string(log_id) + "-";
  if (!id.starts_with(prefix)) return std::nullopt;
  uint64_t number = 0;
  const char* const end = id.data() + id.size();
  const auto [stop, error] = std::from_chars(id.data() + prefix.size(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

Json EventJson(const Event& event, const Services& services) {
  Json json = {{"id", EventId(services.event_log_id, event.number)},
               {"ts", services.events_wall.UnixMs(event.at)},
               {"kind", EventName(event.kind)}};
  if (event.pool_id != kNoPool) json["pool_id"] = event.pool_id;
  if (!event.session_id.empty()) json["session_id"] = event.session_id;
  AddFacts(json, event.facts);
  return json;
}

bool EventFeed::Next(std::string* out) {
  const bool more = Advance(out);
  last_output_us_ = services_->clock->NowUs();
  return more;
}

bool EventFeed::Advance(std::string* out) {
  while (!should_stop_()) {
    if (!position_) {
      *out = Reset();
      return true;
    }
    const EventLog::Part part = services_->events->After(*position_, kSlice);
    if (part.gap) {
      position_.reset();
      reset_reason_ = "gap";
      continue;
    }
    for (const auto& event : part.events) {
      position_ = event->number;
      if (!caller_.Sees(event->tenant)) continue;
      const Json json = EventJson(*event, *services_);
      *out += SseText(json["id"], EventName(event->kind), json);
    }
    if (part.closed || !out->empty()) return !part.closed;
    if (services_->clock->NowUs() - last_output_us_ >= kPingUs) {
      *out = ":\n\n";
      return true;
    }
  }
  return false;
}

std::string EventFeed::Reset() {
  position_ = services_->events->newest();  // before the picture, which shows at least as much
  const auto snapshot = services_->Snapshot();
  const WallClock wall = services_->Wall();
  const std::string id = EventId(services_->event_log_id, *position_);
  Json json = {{"id", id}, {"ts", services_->unix_ms()}, {"kind", "reset"}};
  json["reason"] = reset_reason_;
  json["snapshot"] = PoolTreeJson(*snapshot, caller_, wall);
  Json& sessions = json["snapshot"]["sessions"] = Json::array();
  for (const SessionView& session : snapshot->sessions) {
    if (caller_.Sees(session.tenant)) sessions.push_back(SessionJson(session, wall));
  }
  return SseText(id, "reset", json);
}

}  // namespace polykv
