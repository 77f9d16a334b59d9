// The latest events, from the engine thread to any number of readers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "events/event.h"

namespace polykv {

// Thread-safe. Events are immutable once they are in; no lock is held while one is read.
class EventLog {
 public:
  static constexpr size_t kCapacity = 4096;  // events kept; the oldest make room

  explicit EventLog(size_t capacity = kCapacity) : capacity_(capacity) {}

  void Append(std::vector<Event> events);  // in their order; sets their numbers
  void Close();                            // nothing comes any more: readers need not wait

  uint64_t newest() const;  // number of the newest event; 0: there was none yet
  bool closed() const;

  struct Part {
    std::vector<std::shared_ptr<const Event>> events;  // oldest first
    bool gap = false;     // what followed is no longer there, or was never: nothing is returned
    bool closed = false;  // and nothing follows
  };
  // What came after event `number`, 0 meaning all. Waits up to `timeout` for something to come.
  Part After(uint64_t number, std::chrono::milliseconds timeout) const;
  // All that is there.
  Part All() const;

 private:
  Part Since(uint64_t number) const;  // REQUIRES: mutex_ is held, no gap

  const size_t capacity_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<std::shared_ptr<const Event>> events_;  // with the numbers up to newest_
  uint64_t newest_ = 0;
  bool closed_ = false;
};

}  // namespace polykv
