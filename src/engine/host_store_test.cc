#include "engine/host_store.h"

#include <gtest/gtest.h>

#include <random>

namespace polykv {
namespace {

constexpr int64_t kPerToken = 4;  // bytes that the list of tokens takes

std::vector<Token> Tokens(size_t n, Token first = 0) {
  std::vector<Token> tokens(n, 1);
  if (n > 0) tokens[0] = first;
  return tokens;
}

bool Add(HostStore& store, const std::vector<Token>& tokens, size_t state_size) {
  return store.AddPromptOrNull({.tokens = tokens}, state_size) != nullptr;
}

bool AddSession(HostStore& store, int64_t id, size_t state_size) {
  return store.AddOrNull(HostKind::kSession, id, {}, state_size) != nullptr;
}

bool HasSession(const HostStore& store, int64_t id) {
  return store.FindOrNull(HostKind::kSession, id) != nullptr;
}

TEST(HostStore, NothingIsSavedWhenItIsOff) {
  HostStore store({.max_bytes = 0, .max_tokens = 1000});
  EXPECT_FALSE(store.on());
  EXPECT_FALSE(Add(store, Tokens(1), 1));
  EXPECT_EQ(store.n_bytes(), 0);
}

TEST(HostStore, NeverHoldsMoreThanItsCap) {
  HostStore store({.max_bytes = 10'000});
  std::minstd_rand random(1);
  for (Token i = 0; i < 500; ++i) {
    const size_t size = random() % 12'000;
    const bool fits = static_cast<int64_t>(size) + 10 * kPerToken <= 10'000;
    EXPECT_EQ(Add(store, Tokens(10, i), size), fits);
    EXPECT_LE(store.n_bytes(), 10'000);
  }
}

TEST(HostStore, WhatDoesNotFitAloneDisturbsNobody) {
  HostStore store({.max_bytes = 1'000});
  ASSERT_TRUE(Add(store, Tokens(10, 1), 500));
  EXPECT_FALSE(Add(store, Tokens(10, 2), 1'000));
  EXPECT_TRUE(store.Holds(Tokens(10, 1), {}));
}

TEST(HostStore, TheOldestMakesRoom) {
  HostStore store({.max_bytes = 1'000});
  for (Token i = 1; i <= 3; ++i) ASSERT_TRUE(Add(store, Tokens(10, i), 400));
  EXPECT_EQ(store.n_entries(), 2U);
  EXPECT_FALSE(store.Holds(Tokens(10, 1), {}));
  EXPECT_EQ(store.n_bytes(), 2 * (400 + 10 * kPerToken));
}

TEST(HostStore, CountsCheckpointsToo) {
  HostStore store({.max_bytes = 1'000});
  const std::vector<Checkpoint> checkpoints = {
      {.n_tokens = 5, .state = std::make_shared<HostBytes>(700)}};
  const auto add = [&](size_t state_size) {
    SavedSequence saved;
    saved.tokens = Tokens(10);
    saved.checkpoints = checkpoints;
    return store.AddPromptOrNull(std::move(saved), state_size);
  };
  EXPECT_EQ(add(400), nullptr);
  ASSERT_NE(add(100), nullptr);
  EXPECT_EQ(store.n_bytes(), 700 + 100 + 10 * kPerToken);
}

TEST(HostStore, ALongerEntryReplacesWhatItBeginsWith) {
  HostStore store({.max_bytes = -1});
  ASSERT_TRUE(Add(store, Tokens(10), 1));
  ASSERT_TRUE(Add(store, Tokens(10, 7), 1));
  ASSERT_TRUE(Add(store, Tokens(20), 1));
  EXPECT_EQ(store.n_entries(), 2U);
  EXPECT_TRUE(store.Holds(Tokens(15), {}));
  EXPECT_FALSE(store.Holds(Tokens(21), {}));
}

TEST(HostStore, WhatIsOfAnotherOriginIsNeitherFoundNorReplaced) {
  HostStore store({.max_bytes = -1});
  const CellOrigin first{.tenant = 1};
  ASSERT_NE(store.AddPromptOrNull({.tokens = Tokens(10), .origin = first}, 1), nullptr);
  EXPECT_TRUE(store.Holds(Tokens(10), first));
  EXPECT_EQ(store.FindBetterOrNull(Tokens(12), {}, {}), nullptr);
  for (const CellOrigin& other :
       {CellOrigin{}, CellOrigin{.tenant = 2}, CellOrigin{AdapterSet({{0, 1.0F}}, 1), 1}}) {
    EXPECT_FALSE(store.Holds(Tokens(10), other));
    ASSERT_NE(store.AddPromptOrNull({.tokens = Tokens(11), .origin = other}, 1), nullptr);
  }
  EXPECT_EQ(store.n_entries(), 4U);
  EXPECT_EQ(store.FindBetterOrNull(Tokens(12), first, {})->origin, first);
}

TEST(HostStore, MaxTokensGrowsToWhatTheBytesCanHold) {
  HostStore tokens_only({.max_bytes = -1, .max_tokens = 25});
  HostStore both({.max_bytes = 100'000, .max_tokens = 25});
  for (HostStore* store : {&tokens_only, &both}) {
    for (Token i = 0; i < 5; ++i) ASSERT_TRUE(Add(*store, Tokens(10, i), 100));
    store->DropPromptsBeyondMaxTokens();
  }
  EXPECT_EQ(tokens_only.n_entries(), 2U);
  EXPECT_EQ(both.n_entries(), 5U);
}

TEST(HostStore, FindsTheEntryWithMoreToReuse) {
  HostStore store({.max_bytes = -1});
  ASSERT_TRUE(Add(store, Tokens(40, 5), 1));
  ASSERT_TRUE(Add(store, Tokens(200, 6), 1));
  const std::vector<Token> own = Tokens(10, 9);
  EXPECT_EQ(store.FindBetterOrNull(Tokens(50, 7), {}, own), nullptr);
  const SavedSequence* found = store.FindBetterOrNull(Tokens(50, 5), {}, own);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->tokens, Tokens(40, 5));
  EXPECT_EQ(store.FindBetterOrNull(Tokens(49, 6), {}, {}), nullptr) << "a quarter must be of use";
  EXPECT_NE(store.FindBetterOrNull(Tokens(50, 6), {}, {}), nullptr);
  EXPECT_EQ(store.FindBetterOrNull(Tokens(50, 5), {}, Tokens(45, 5)), nullptr) << "own is as good";
}

TEST(HostStore, WhatIsTakenIsNoLongerThere) {
  HostStore store({.max_bytes = -1});
  ASSERT_TRUE(Add(store, Tokens(40), 8));
  const SavedSequence taken = store.Take(store.FindBetterOrNull(Tokens(50), {}, {}));
  EXPECT_EQ(taken.tokens, Tokens(40));
  EXPECT_EQ(store.n_entries(), 0U);
  EXPECT_EQ(store.n_bytes(), 0);
}

TEST(HostStore, OwnersFindTheirEntriesAndPromptsDoNot) {
  HostStore store({.max_bytes = -1, .max_tokens = 5});
  ASSERT_TRUE(AddSession(store, 1, 30));
  ASSERT_NE(store.AddOrNull(HostKind::kPool, 1, {.tokens = Tokens(10)}, 40), nullptr);
  EXPECT_EQ(store.FindOrNull(HostKind::kSession, 1)->state.size(), 30U);
  EXPECT_EQ(store.FindOrNull(HostKind::kPool, 1)->state.size(), 40U);
  EXPECT_FALSE(HasSession(store, 2));
  EXPECT_FALSE(store.Holds(Tokens(10), {}));
  EXPECT_EQ(store.FindBetterOrNull(Tokens(10), {}, {}), nullptr);
  ASSERT_TRUE(Add(store, Tokens(12), 1));
  store.DropPromptsBeyondMaxTokens();
  EXPECT_EQ(store.n_entries(), 2U);
  EXPECT_EQ(store.UsageOf(HostKind::kPool).n_bytes, 40 + 10 * kPerToken);
  store.Drop(HostKind::kPool, 1);
  EXPECT_EQ(store.n_bytes(), 30);
  store.CheckIntegrity([](HostKind, int64_t owner) { return owner == 1; });
}

TEST(HostStore, ANewEntryOfAnOwnerReplacesTheOld) {
  HostStore store({.max_bytes = 100});
  ASSERT_TRUE(AddSession(store, 1, 60));
  ASSERT_TRUE(AddSession(store, 1, 70));
  EXPECT_EQ(store.n_bytes(), 70);
  EXPECT_FALSE(AddSession(store, 1, 101)) << "and what does not fit leaves the old one";
  EXPECT_TRUE(HasSession(store, 1));
}

TEST(HostStore, TheOldestOfAnyKindMakesRoom) {
  HostStore store({.max_bytes = 1'000});
  ASSERT_TRUE(AddSession(store, 1, 400));
  ASSERT_TRUE(Add(store, Tokens(10), 400));
  ASSERT_TRUE(AddSession(store, 2, 400));
  EXPECT_FALSE(HasSession(store, 1));
  EXPECT_TRUE(store.Holds(Tokens(10), {}));
  ASSERT_TRUE(AddSession(store, 3, 400));
  EXPECT_FALSE(store.Holds(Tokens(10), {}));
  EXPECT_TRUE(HasSession(store, 2));
}

TEST(HostStore, AnEntryThatGrowsDisplacesOlderOnesAndNeverItself) {
  HostStore store({.max_bytes = 1'000});
  for (const int64_t id : {1, 2, 3}) ASSERT_TRUE(AddSession(store, id, 300));
  EXPECT_NE(store.GrowOrNull(HostKind::kSession, 1, 400), nullptr);
  EXPECT_EQ(store.FindOrNull(HostKind::kSession, 1)->shared_state.size(), 400U);
  EXPECT_FALSE(HasSession(store, 2));
  EXPECT_EQ(store.n_bytes(), 1'000);
  EXPECT_EQ(store.GrowOrNull(HostKind::kSession, 3, 701), nullptr) << "not even alone";
  EXPECT_EQ(store.GrowOrNull(HostKind::kSession, 2, 1), nullptr) << "it is gone";
  EXPECT_TRUE(HasSession(store, 1));
  EXPECT_TRUE(HasSession(store, 3));
  store.CheckIntegrity([](HostKind, int64_t) { return true; });
}

TEST(HostStore, TheNumberOfEntriesIsLimitedToo) {
  HostStore store({.max_bytes = -1, .max_entries = 2});
  for (const int64_t id : {1, 2, 3}) ASSERT_TRUE(AddSession(store, id, 1));
  EXPECT_EQ(store.n_entries(), 2U);
  EXPECT_FALSE(HasSession(store, 1));
}

}  // namespace
}  // namespace polykv
