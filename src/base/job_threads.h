// Threads for jobs that block. A job never waits for another one while a thread may still be made.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace polykv {

// Thread-safe. Threads are made when jobs come and go when they have had none for a while.
class JobThreads {
 public:
  // At most `max_threads` jobs run at a time, and `max_waiting` more wait for their turn.
  JobThreads(size_t max_threads, size_t max_waiting);
  ~JobThreads();  // Join
  JobThreads(const JobThreads&) = delete;
  JobThreads& operator=(const JobThreads&) = delete;

  // False if as many run and wait as may, if the system has no thread to give, or after Join: the
  // job is dropped then. It must not throw.
  bool Run(std::function<void()> job);

  size_t n_open() const;  // jobs that run or wait

  // Takes no more jobs and waits for the end of those that were taken.
  void Join();

 private:
  using Threads = std::list<std::thread>;

  bool StartThread();
  void Work(Threads::iterator self);
  void JoinEnded();

  const size_t max_threads_;
  const size_t max_waiting_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable ready_;
  std::condition_variable thread_ended_;
  std::deque<std::function<void()>> jobs_;  // not begun
  size_t n_idle_ = 0;                       // threads without a job, those just made included
  Threads threads_;
  Threads ended_;  // to be joined
  bool joining_ = false;
};

}  // namespace polykv
