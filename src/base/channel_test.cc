#include "base/channel.h"

#include <gtest/gtest.h>

#include <thread>

namespace polykv {
namespace {

using std::chrono::milliseconds;

TEST(Channel, DeliversInOrderAcrossThreads) {
  Channel<int> channel;
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) channel.Push(i);
  });
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(channel.Next(milliseconds(10'000)), i);
  writer.join();
}

TEST(Channel, AnEmptyChannelGivesNothingAfterTheTimeout) {
  Channel<int> channel;
  EXPECT_EQ(channel.Next(milliseconds(0)), std::nullopt);
}

TEST(Channel, TheWriterSeesThatTheReaderIsGone) {
  Channel<int> channel;
  EXPECT_FALSE(channel.cancelled());
  channel.Cancel();
  EXPECT_TRUE(channel.cancelled());
}

}  // namespace
}  // namespace polykv
