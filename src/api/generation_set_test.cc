#include "api/generation_set.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

using std::chrono::milliseconds;

TEST(GenerationSetTest, DeliversInOrderUntilAllHaveFinished) {
  const auto channel = std::make_shared<GenerationChannel>();
  GenerationSet set(channel, 2);
  channel->Push({1, Started{}});
  channel->Push({1, Finished{}});
  channel->Push({0, Problem{}});
  EXPECT_TRUE(std::holds_alternative<Started>(set.Next(milliseconds(0))->event));
  EXPECT_EQ(set.Next(milliseconds(0))->index, 1U);
  EXPECT_FALSE(set.all_finished());
  EXPECT_EQ(set.Next(milliseconds(0))->index, 0U);
  EXPECT_TRUE(set.all_finished());
}

TEST(GenerationSetTest, TimesOut) {
  GenerationSet set(std::make_shared<GenerationChannel>(), 2);
  EXPECT_FALSE(set.Next(milliseconds(5)).has_value());
  EXPECT_FALSE(set.Next(milliseconds(0)).has_value());
}

TEST(GenerationSetTest, ItsEndCancelsWhatIsOpen) {
  const auto open = std::make_shared<GenerationChannel>();
  const auto done = std::make_shared<GenerationChannel>();
  {
    const GenerationSet one(open, 2);
    GenerationSet other(done, 1);
    done->Push({0, Problem{}});
    (void)other.Next(milliseconds(0));
  }
  EXPECT_TRUE(open->cancelled());
  EXPECT_FALSE(done->cancelled());
}

}  // namespace
}  // namespace polykv
