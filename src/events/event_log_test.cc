#include "events/event_log.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

namespace polykv {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAtOnce{0};
constexpr milliseconds kLong{60'000};  // against hanging only

std::vector<Event> Events(int n) { return std::vector<Event>(static_cast<size_t>(n)); }

std::vector<uint64_t> Numbers(const EventLog::Part& part) {
  std::vector<uint64_t> numbers;
  for (const auto& event : part.events) numbers.push_back(event->number);
  return numbers;
}

TEST(EventLogTest, GivesWhatCameAfterANumber) {
  EventLog log;
  EXPECT_EQ(log.newest(), 0U);
  EXPECT_TRUE(log.After(0, kAtOnce).events.empty());
  log.Append(Events(2));
  log.Append(Events(1));
  EXPECT_EQ(log.newest(), 3U);
  EXPECT_EQ(Numbers(log.After(0, kAtOnce)), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(Numbers(log.After(2, kAtOnce)), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(log.After(3, kAtOnce).events.empty());
}

TEST(EventLogTest, SaysWhenSomethingIsMissing) {
  EventLog log(2);
  log.Append(Events(5));
  EXPECT_EQ(Numbers(log.All()), (std::vector<uint64_t>{4, 5}));
  EXPECT_EQ(Numbers(log.After(3, kAtOnce)), (std::vector<uint64_t>{4, 5})) << "4 is still there";
  EXPECT_TRUE(log.After(2, kAtOnce).gap);
  EXPECT_TRUE(log.After(0, kAtOnce).gap);
  EXPECT_TRUE(log.After(6, kAtOnce).gap) << "a number of nobody's";
  EXPECT_TRUE(log.After(2, kAtOnce).events.empty());
}

TEST(EventLogTest, WakesAReaderThatWaits) {
  EventLog log;
  std::vector<uint64_t> seen;
  std::thread reader([&] { seen = Numbers(log.After(0, kLong)); });
  log.Append(Events(1));
  reader.join();
  EXPECT_EQ(seen, std::vector<uint64_t>{1});
}

TEST(EventLogTest, ClosedItNeverMakesAReaderWait) {
  EventLog log;
  log.Append(Events(1));
  bool closed = false;
  std::thread reader([&] { closed = log.After(1, kLong).closed; });
  log.Close();
  reader.join();
  EXPECT_TRUE(closed);
  EXPECT_EQ(Numbers(log.After(0, kLong)), std::vector<uint64_t>{1}) << "the rest can be read";
}

TEST(EventLogTest, EveryKindHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumEventKinds; ++i) names.insert(EventName(static_cast<EventKind>(i)));
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumEventKinds));
  EXPECT_FALSE(names.contains(""));
}

}  // namespace
}  // namespace polykv
