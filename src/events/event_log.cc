#include "events/event_log.h"

#include <algorithm>
#include <utility>

namespace polykv {

void EventLog::Append(std::vector<Event> events) {
  std::vector<std::shared_ptr<const Event>> gone;  // freed without the lock
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Event& event : events) {
      event.number = ++newest_;
      events_.push_back(std::make_shared<const Event>(std::move(event)));
    }
    while (events_.size() > capacity_) {
      gone.push_back(std::move(events_.front()));
      events_.pop_front();
    }
  }
  changed_.notify_all();
}

void EventLog::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

uint64_t EventLog::newest() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return newest_;
}

bool EventLog::closed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return closed_;
}

EventLog::Part EventLog::Since(uint64_t number) const {
  const auto n_new = static_cast<std::ptrdiff_t>(newest_ - number);
  Part part;
  part.events.assign(events_.end() - n_new, events_.end());
  part.closed = closed_;
  return part;
}

EventLog::Part EventLog::After(uint64_t number, std::chrono::milliseconds timeout) const {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return newest_ != number || closed_; });
  if (number > newest_ || newest_ - number > events_.size()) return {.gap = true};
  return Since(number);
}

EventLog::Part EventLog::All() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return Since(newest_ - events_.size());
}

}  // namespace polykv
