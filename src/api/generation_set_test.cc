#include "api/generation_set.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

using std::chrono::milliseconds;

std::vector<std::shared_ptr<GenerationChannel>> Channels(size_t n) {
  std::vector<std::shared_ptr<GenerationChannel>> channels;
  for (size_t i = 0; i < n; ++i) channels.push_back(std::make_shared<GenerationChannel>());
  return channels;
}

TEST(GenerationSetTest, DeliversInOrderAndFinishes) {
  const auto channels = Channels(1);
  GenerationSet set(channels);
  channels[0]->Push(Started{});
  channels[0]->Push(Finished{});
  EXPECT_TRUE(std::holds_alternative<Started>(set.Next(milliseconds(0))->second));
  EXPECT_FALSE(set.all_finished());
  EXPECT_TRUE(std::holds_alternative<Finished>(set.Next(milliseconds(0))->second));
  EXPECT_TRUE(set.all_finished());
}

TEST(GenerationSetTest, TakesTurnsBetweenChannels) {
  const auto channels = Channels(3);
  GenerationSet set(channels);
  for (const auto& channel : channels) {
    channel->Push(Piece{});
    channel->Push(Piece{});
  }
  std::vector<size_t> order;
  for (int i = 0; i < 6; ++i) order.push_back(set.Next(milliseconds(0))->first);
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 0, 1, 2}));
}

TEST(GenerationSetTest, FindsTheOneThatHasSomething) {
  const auto channels = Channels(3);
  GenerationSet set(channels);
  channels[1]->Push(Finished{});
  EXPECT_EQ(set.Next(milliseconds(5))->first, 1U);
  channels[2]->Push(Piece{});
  EXPECT_EQ(set.Next(milliseconds(5))->first, 2U);
}

TEST(GenerationSetTest, TimesOut) {
  GenerationSet set(Channels(2));
  EXPECT_FALSE(set.Next(milliseconds(5)).has_value());
  EXPECT_FALSE(set.Next(milliseconds(0)).has_value());
}

TEST(GenerationSetTest, EndCancelsOnlyWhatIsOpen) {
  const auto channels = Channels(2);
  {
    GenerationSet set(channels);
    channels[0]->Push(Problem{});
    (void)set.Next(milliseconds(0));
  }
  EXPECT_FALSE(channels[0]->cancelled());
  EXPECT_TRUE(channels[1]->cancelled());
}

}  // namespace
}  // namespace polykv
