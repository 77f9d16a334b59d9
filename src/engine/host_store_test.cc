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
  return store.AddOrNull(tokens, {}, {}, state_size) != nullptr;
}

TEST(HostStore, NothingIsSavedWhenItIsOff) {
  HostStore store(0, 1000);
  EXPECT_FALSE(store.on());
  EXPECT_FALSE(Add(store, Tokens(1), 1));
  EXPECT_EQ(store.n_bytes(), 0);
}

TEST(HostStore, NeverHoldsMoreThanItsCap) {
  HostStore store(10'000, 0);
  std::minstd_rand random(1);
  for (Token i = 0; i < 500; ++i) {
    const size_t size = random() % 12'000;
    const bool fits = static_cast<int64_t>(size) + 10 * kPerToken <= 10'000;
    EXPECT_EQ(Add(store, Tokens(10, i), size), fits);
    EXPECT_LE(store.n_bytes(), 10'000);
  }
}

TEST(HostStore, WhatDoesNotFitAloneDisturbsNobody) {
  HostStore store(1'000, 0);
  ASSERT_TRUE(Add(store, Tokens(10, 1), 500));
  EXPECT_FALSE(Add(store, Tokens(10, 2), 1'000));
  EXPECT_TRUE(store.Holds(Tokens(10, 1), {}));
}

TEST(HostStore, TheOldestMakesRoom) {
  HostStore store(1'000, 0);
  for (Token i = 1; i <= 3; ++i) ASSERT_TRUE(Add(store, Tokens(10, i), 400));
  EXPECT_EQ(store.n_entries(), 2U);
  EXPECT_FALSE(store.Holds(Tokens(10, 1), {}));
  EXPECT_EQ(store.n_bytes(), 2 * (400 + 10 * kPerToken));
}

TEST(HostStore, CountsCheckpointsToo) {
  HostStore store(1'000, 0);
  const std::vector<Checkpoint> checkpoints = {
      {.n_tokens = 5, .state = std::make_shared<HostBytes>(700)}};
  EXPECT_EQ(store.AddOrNull(Tokens(10), {}, checkpoints, 400), nullptr);
  ASSERT_NE(store.AddOrNull(Tokens(10), {}, checkpoints, 100), nullptr);
  EXPECT_EQ(store.n_bytes(), 700 + 100 + 10 * kPerToken);
}

TEST(HostStore, ALongerEntryReplacesWhatItBeginsWith) {
  HostStore store(-1, 0);
  ASSERT_TRUE(Add(store, Tokens(10), 1));
  ASSERT_TRUE(Add(store, Tokens(10, 7), 1));
  ASSERT_TRUE(Add(store, Tokens(20), 1));
  EXPECT_EQ(store.n_entries(), 2U);
  EXPECT_TRUE(store.Holds(Tokens(15), {}));
  EXPECT_FALSE(store.Holds(Tokens(21), {}));
}

TEST(HostStore, MaxTokensGrowsToWhatTheBytesCanHold) {
  HostStore tokens_only(-1, 25);
  HostStore both(100'000, 25);
  for (HostStore* store : {&tokens_only, &both}) {
    for (Token i = 0; i < 5; ++i) ASSERT_TRUE(Add(*store, Tokens(10, i), 100));
    store->DropBeyondMaxTokens();
  }
  EXPECT_EQ(tokens_only.n_entries(), 2U);
  EXPECT_EQ(both.n_entries(), 5U);
}

TEST(HostStore, FindsTheEntryWithMoreToReuse) {
  HostStore store(-1, 0);
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
  HostStore store(-1, 0);
  ASSERT_TRUE(Add(store, Tokens(40), 8));
  const SavedSequence taken = store.Take(store.FindBetterOrNull(Tokens(50), {}, {}));
  EXPECT_EQ(taken.tokens, Tokens(40));
  EXPECT_EQ(store.n_entries(), 0U);
  EXPECT_EQ(store.n_bytes(), 0);
}

}  // namespace
}  // namespace polykv
