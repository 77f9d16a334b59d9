// One reply queue per request: the engine pushes, one HTTP worker waits. No lock or condition is
// shared between requests, so a token for one stream wakes exactly one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace polykv {

// Thread-safe. `Cancel` is the reader's word that it is gone; the writer looks at `cancelled()`.
template <typename T>
class Channel {
 public:
  void Push(T item) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
  }

  // The next item, or nothing after `timeout` (0: at once).
  std::optional<T> Next(std::chrono::milliseconds timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (timeout.count() > 0) ready_.wait_for(lock, timeout, [this] { return !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  void Cancel() { cancelled_.store(true, std::memory_order_release); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;  // guarded by mutex_
};

}  // namespace polykv
