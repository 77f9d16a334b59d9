#include "api/stream_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace polykv {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMiB = size_t{1} << 20;
constexpr milliseconds kNoWait{0};

std::string ReadAll(RecordedStream* stream, size_t offset) {
  std::string all;
  for (auto part = stream->Read(offset, kNoWait); !part.bytes.empty();
       part = stream->Read(offset, kNoWait)) {
    offset += part.bytes.size();
    all += part.bytes;
  }
  return all;
}

TEST(RecordedStreamTest, GivesTheSameBytesFromAnyOffset) {
  RecordedStream stream({.id = "a"}, 100);
  stream.Append("one ");
  stream.Append("two");
  for (size_t offset = 0; offset <= 7; ++offset) {
    EXPECT_EQ(ReadAll(&stream, offset), std::string("one two").substr(offset));
  }
  EXPECT_TRUE(stream.Read(7, kNoWait).more);
  EXPECT_TRUE(stream.Read(9, kNoWait).more);
}

TEST(RecordedStreamTest, NothingComesAfterTheEnd) {
  RecordedStream stream({.id = "a"}, 100);
  stream.Append("one");
  stream.End(130);
  stream.End(140);
  stream.Append(" two");
  EXPECT_EQ(ReadAll(&stream, 0), "one");
  EXPECT_FALSE(stream.Read(3, kNoWait).more);
  EXPECT_TRUE(stream.info().is_done);
  EXPECT_EQ(stream.info().completed_unix_s, 130);
}

TEST(RecordedStreamTest, AReaderWaitsForBytesAndForTheEnd) {
  RecordedStream stream({.id = "a"}, 100);
  std::string read;
  std::thread reader([&] {
    for (RecordedStream::Part part{.bytes = {}, .more = true}; part.more;) {
      part = stream.Read(read.size(), milliseconds(60'000));
      read += part.bytes;
    }
  });
  stream.Append("one ");
  stream.Append("two");
  stream.End(100);
  reader.join();
  EXPECT_EQ(read, "one two");
}

TEST(RecordedStreamTest, KeepsTheLastFourMebibytes) {
  RecordedStream stream({.id = "a"}, 100);
  for (int i = 0; i < 11; ++i) stream.Append(std::string(kMiB, static_cast<char>('a' + i)));
  EXPECT_EQ(stream.info().n_bytes, 11 * kMiB);
  EXPECT_EQ(stream.info().n_dropped, 7 * kMiB);
  EXPECT_EQ(ReadAll(&stream, 7 * kMiB).size(), 4 * kMiB);
  EXPECT_EQ(ReadAll(&stream, 7 * kMiB).front(), 'h');
  EXPECT_EQ(ReadAll(&stream, 10 * kMiB), std::string(kMiB, 'k'));
  const RecordedStream::Part lost = stream.Read(7 * kMiB - 1, kNoWait);
  EXPECT_TRUE(lost.bytes.empty());
  EXPECT_FALSE(lost.more);
}

TEST(StreamStoreTest, ANewStreamEndsTheEarlierOneOfItsConversation) {
  StreamStore store;
  const auto first = store.Open({.id = "a"}, 100);
  const auto other = store.Open({.id = "b"}, 100);
  const auto second = store.Open({.id = "a"}, 110);
  EXPECT_TRUE(first->cancelled());
  EXPECT_TRUE(first->info().is_done);
  EXPECT_FALSE(second->cancelled());
  EXPECT_FALSE(other->cancelled());
  EXPECT_EQ(store.FindOrNull({.id = "a"}, 110), second);
}

TEST(StreamStoreTest, AStoppedStreamIsForgotten) {
  StreamStore store;
  const auto stream = store.Open({.id = "a"}, 100);
  store.Cancel({.id = "b"}, 100);
  EXPECT_FALSE(stream->cancelled());
  store.Cancel({.id = "a"}, 100);
  EXPECT_TRUE(stream->cancelled());
  EXPECT_TRUE(stream->info().is_done);
  EXPECT_EQ(store.FindOrNull({.id = "a"}, 100), nullptr);
}

TEST(StreamStoreTest, KeepsAnEndedStreamForFiveMinutesAndARunningOneForEver) {
  StreamStore store;
  store.Open({.id = "running"}, 100);
  store.Open({.id = "ended"}, 100)->End(200);
  EXPECT_NE(store.FindOrNull({.id = "ended"}, 499), nullptr);
  EXPECT_EQ(store.FindOrNull({.id = "ended"}, 500), nullptr);
  EXPECT_NE(store.FindOrNull({.id = "running"}, 100'000), nullptr);
}

TEST(StreamStoreTest, TheOldestEndedStreamsGoWhenTheSumIsTooLarge) {
  StreamStore store(3 * kMiB);
  const char* const ids[] = {"oldest", "running", "newer", "newest"};
  for (const char* id : ids) store.Open({.id = id}, 100)->Append(std::string(kMiB, 'x'));
  int64_t end = 100;
  for (const char* id : {"oldest", "newer", "newest"})
    store.FindOrNull({.id = id}, 100)->End(++end);
  EXPECT_EQ(store.FindOrNull({.id = "oldest"}, 110), nullptr);
  for (const char* id : {"running", "newer", "newest"}) {
    EXPECT_NE(store.FindOrNull({.id = id}, 110), nullptr) << id;
  }
}

TEST(StreamStoreTest, LooksUpOnlyWhatItIsAskedForWithItsVariants) {
  StreamStore store;
  for (const char* id : {"a", "a::model", "ab", "b"}) store.Open({.id = id}, 100);
  std::vector<std::string> found;
  for (const StreamInfo& info : store.Lookup(kEverybody, {"a", "none"}, 100)) {
    found.push_back(info.conversation.id);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"a", "a::model"}));
}

TEST(StreamStoreTest, EqualIdsOfTwoTenantsAreTwoConversations) {
  StreamStore store;
  const auto first = store.Open({1, "a"}, 100);
  const auto second = store.Open({2, "a"}, 100);
  EXPECT_FALSE(first->cancelled());
  EXPECT_EQ(store.FindOrNull({1, "a"}, 100), first);
  EXPECT_EQ(store.FindOrNull({3, "a"}, 100), nullptr);
  EXPECT_EQ(store.Lookup(1, {"a"}, 100).size(), 1U);
  EXPECT_TRUE(store.Lookup(3, {"a"}, 100).empty());
  store.Cancel({2, "a"}, 100);
  EXPECT_FALSE(first->cancelled());
  EXPECT_TRUE(second->cancelled());
}

TEST(StreamRecordingTest, EndsItsStreamAndForgetsOneWithoutAByte) {
  StreamStore store;
  const auto now = [] { return int64_t{100}; };
  {
    StreamRecording(&store, Conversation{.id = "empty"}, now);
  }
  EXPECT_EQ(store.FindOrNull({.id = "empty"}, 100), nullptr);
  {
    StreamRecording(&store, Conversation{.id = "full"}, now).Append("x");
  }
  ASSERT_NE(store.FindOrNull({.id = "full"}, 100), nullptr);
  EXPECT_TRUE(store.FindOrNull({.id = "full"}, 100)->info().is_done);
}

TEST(StreamRecordingTest, ItsEndLeavesALaterStreamAlone) {
  StreamStore store;
  auto recording = std::make_unique<StreamRecording>(&store, Conversation{.id = "a"},
                                                     [] { return int64_t{100}; });
  const auto later = store.Open({.id = "a"}, 100);
  EXPECT_TRUE(recording->cancelled());
  recording.reset();
  EXPECT_EQ(store.FindOrNull({.id = "a"}, 100), later);
  EXPECT_FALSE(later->info().is_done);
}

}  // namespace
}  // namespace polykv
