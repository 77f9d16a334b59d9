#include "base/job_threads.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace polykv {
namespace {

constexpr std::chrono::seconds kIdleTime{10};  // after which a thread goes

}  // namespace

JobThreads::JobThreads(size_t max_threads, size_t max_waiting)
    : max_threads_(max_threads), max_waiting_(max_waiting) {}

JobThreads::~JobThreads() { Join(); }

bool JobThreads::Run(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  JoinEnded();
  if (joining_) return false;
  const bool has_thread = jobs_.size() < n_idle_ || StartThread();
  if (!has_thread && (threads_.empty() || jobs_.size() >= n_idle_ + max_waiting_)) return false;
  jobs_.push_back(std::move(job));
  ready_.notify_one();
  return true;
}

size_t JobThreads::n_open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return threads_.size() - n_idle_ + jobs_.size();
}

void JobThreads::Join() {
  std::unique_lock<std::mutex> lock(mutex_);
  joining_ = true;
  ready_.notify_all();
  thread_ended_.wait(lock, [this] { return threads_.empty(); });
  JoinEnded();
}

bool JobThreads::StartThread() {
  if (threads_.size() >= max_threads_) return false;
  threads_.emplace_front();
  try {
    threads_.front() = std::thread([this, self = threads_.begin()] { Work(self); });
  } catch (const std::system_error&) {
    threads_.pop_front();
    return false;
  }
  ++n_idle_;
  return true;
}

void JobThreads::Work(Threads::iterator self) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    ready_.wait_for(lock, kIdleTime, [this] { return joining_ || !jobs_.empty(); });
    if (jobs_.empty()) break;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    --n_idle_;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    ++n_idle_;
  }
  --n_idle_;
  ended_.splice(ended_.end(), threads_, self);
  thread_ended_.notify_all();
}

// Their last act was to let go of the mutex: none of them keeps the caller waiting.
void JobThreads::JoinEnded() {
  for (std::thread& thread : ended_) thread.join();
  ended_.clear();
}

}  // namespace polykv
