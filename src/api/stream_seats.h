// How many status streams may be open at once: each is a thread that wakes up several times a
// second.
#pragma once

#include <atomic>
#include <memory>

#include "api/problem.h"

namespace polykv {

// Thread-safe. Shared by the routes that stream status.
class StreamSeats {
 public:
  static constexpr int kCount = 64;

  // A seat for as long as the copy lives; none left: null.
  std::shared_ptr<void> TakeOrNull() {
    if (n_open_->fetch_add(1) >= kCount) {
      n_open_->fetch_sub(1);
      return nullptr;
    }
    return {n_open_.get(), [n_open = n_open_](void*) { n_open->fetch_sub(1); }};
  }

  static Problem AllTaken() {
    return {.status = 503,
            .type = "too_many_streams",
            .message = std::to_string(kCount) + " status streams are open already; use ?once=1",
            .retry_after_s = 5};
  }

 private:
  const std::shared_ptr<std::atomic<int>> n_open_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace polykv
