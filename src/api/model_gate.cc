#include "api/model_gate.h"

#include <utility>

namespace polykv {

ModelGate::Hold ModelGate::Take() {
  ++n_holds_;
  return {nullptr, [this](void*) {
            const std::lock_guard<std::mutex> lock(mutex_);
            --n_holds_;
          }};
}

Result<ModelGate::Hold> ModelGate::Enter() {
  Hold hold;  // declared before the lock, which its end needs
  std::unique_lock<std::mutex> lock(mutex_);
  hold = Take();
  used_ = true;
  changed_.wait(lock, [this] { return state_ != State::kLoading; });
  if (state_ == State::kLoaded) return hold;
  if (closed_) {
    return Problem{.status = 503,
                   .type = "unavailable_error",
                   .message = "the server is shutting down",
                   .retry_after_s = 5};
  }
  state_ = State::kLoading;
  lock.unlock();
  std::optional<Problem> problem = config_.load();
  lock.lock();
  state_ = problem.has_value() ? State::kUnloaded : State::kLoaded;
  changed_.notify_all();
  if (problem.has_value()) return *std::move(problem);
  return hold;
}

ModelGate::Glance ModelGate::Look() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {.hold = Take(), .loaded = state_ == State::kLoaded};
}

void ModelGate::Poll(TimeUs now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (config_.idle_us < 0 || state_ != State::kLoaded) return;
  if (std::exchange(used_, false) || !config_.is_quiet()) idle_since_ = now;
  if (n_holds_ > 0 || now - idle_since_ < config_.idle_us) return;
  config_.unload();
  state_ = State::kUnloaded;
}

bool ModelGate::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  return state_ != State::kLoading;
}

}  // namespace polykv
