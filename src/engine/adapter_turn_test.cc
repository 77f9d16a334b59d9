#include "engine/adapter_turn.h"

#include <gtest/gtest.h>

#include <string>

namespace polykv {
namespace {

class AdapterTurnTest : public ::testing::Test {
 protected:
  // One letter per step: which set had it.
  std::string Run(const std::string& wanting, int n_steps) {
    std::vector<AdapterSet> sets;
    for (const char letter : wanting) sets.push_back(Set(letter));
    std::vector<const AdapterSet*> pointers;
    for (const AdapterSet& set : sets) pointers.push_back(&set);
    std::string steps;
    for (int i = 0; i < n_steps; ++i) {
      const AdapterSet next = turn_.Next(pointers);
      turn_.Took(next, pointers);
      steps += static_cast<char>('a' + next.scales().begin()->first);
    }
    return steps;
  }
  static AdapterSet Set(char letter) { return AdapterSet({{letter - 'a', 1.0F}}, 26); }

  AdapterTurn turn_;
};

TEST_F(AdapterTurnTest, ASetThatIsAloneHasEveryStep) { EXPECT_EQ(Run("aa", 9), "aaaaaaaaa"); }

TEST_F(AdapterTurnTest, SetsTakeTurns) {
  EXPECT_EQ(Run("abab", 8), "aabbaabb");
  EXPECT_EQ(Run("abc", 8), "ccaabbcc") << "a and b had theirs";
}

TEST_F(AdapterTurnTest, ASetThatComesLaterIsNotFavoured) {
  EXPECT_EQ(Run("a", 100), std::string(100, 'a'));
  EXPECT_EQ(Run("ab", 6), "bbaabb");
}

TEST_F(AdapterTurnTest, ATurnEndsWhenTheSetHasNoWork) {
  EXPECT_EQ(Run("ab", 1), "a");
  EXPECT_EQ(Run("b", 1), "b");
  EXPECT_EQ(Run("ab", 4), "baab");
}

TEST(AdapterSetTest, WhatHasNoEffectIsNoDifference) {
  EXPECT_EQ(AdapterSet({{0, 0.0F}, {5, 1.0F}, {-1, 1.0F}}, 2), AdapterSet());
  EXPECT_EQ(AdapterSet({{0, 0.5F}, {1, 0.0F}}, 2), AdapterSet({{0, 0.5F}}, 2));
  EXPECT_FALSE(AdapterSet({{0, 0.5F}}, 2) == AdapterSet({{1, 0.5F}}, 2));
}

}  // namespace
}  // namespace polykv
