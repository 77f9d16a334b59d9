#include "base/job_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace polykv {
namespace {

// Jobs that run until they are let go.
class Gate {
 public:
  std::function<void()> Job() {
    return [this, opened = opened_] {
      ++n_running_;
      opened.wait();
      ++n_done_;
    };
  }
  void Open() { open_.set_value(); }
  void AwaitRunning(int n) const {
    while (n_running_.load() < n) std::this_thread::yield();
  }
  int n_running() const { return n_running_.load(); }
  int n_done() const { return n_done_.load(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_{open_.get_future()};
  std::atomic<int> n_running_{0};
  std::atomic<int> n_done_{0};
};

TEST(JobThreads, NoJobWaitsForAnotherOne) {
  Gate gate;
  JobThreads threads(50, 0);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(threads.Run(gate.Job()));
  gate.AwaitRunning(50);
  EXPECT_EQ(threads.n_open(), 50U);
  gate.Open();
}

TEST(JobThreads, IdleThreadsAreUsedAgainAndEachForOneJob) {
  Gate first;
  Gate second;
  JobThreads threads(4, 0);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(threads.Run(first.Job()));
  first.Open();
  while (threads.n_open() > 0) std::this_thread::yield();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(threads.Run(second.Job()));
  EXPECT_FALSE(threads.Run([] {}));
  second.AwaitRunning(4);
  second.Open();
}

TEST(JobThreads, RefusesWhatIsTooMuch) {
  Gate gate;
  JobThreads threads(2, 3);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(threads.Run(gate.Job()));
  EXPECT_FALSE(threads.Run(gate.Job()));
  gate.AwaitRunning(2);
  EXPECT_FALSE(threads.Run(gate.Job()));
  EXPECT_EQ(gate.n_running(), 2);
  gate.Open();
  threads.Join();
  EXPECT_EQ(gate.n_done(), 5);
}

TEST(JobThreads, JoinWaitsForWhatWasTakenAndTakesNoMore) {
  std::atomic<int> n_done{0};
  JobThreads threads(3, 100);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(threads.Run([&n_done] { ++n_done; }));
  threads.Join();
  EXPECT_EQ(n_done.load(), 100);
  EXPECT_FALSE(threads.Run([&n_done] { ++n_done; }));
}

}  // namespace
}  // namespace polykv
