#include "pool/prefix.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

using Tokens = std::vector<Token>;

TEST(LongestCommonPrefix, CountsEqualLeadingTokens) {
  EXPECT_EQ(LongestCommonPrefix(Tokens{1, 2, 3}, Tokens{1, 2, 4, 5}), 2);
  EXPECT_EQ(LongestCommonPrefix(Tokens{1, 2}, Tokens{1, 2, 3}), 2);
  EXPECT_EQ(LongestCommonPrefix(Tokens{9}, Tokens{1}), 0);
  EXPECT_EQ(LongestCommonPrefix(Tokens{}, Tokens{1}), 0);
}

TEST(CumulativeHashes, NamesEachPrefixByItsTokensAlone) {
  const auto a = CumulativeHashes(Tokens{1, 2, 3});
  const auto b = CumulativeHashes(Tokens{1, 2, 4});
  ASSERT_EQ(a.size(), 3U);
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  EXPECT_NE(CumulativeHashes(Tokens{2, 1})[1], a[1]);
}

TEST(MatchPrefix, LeavesOneTokenToCompute) {
  const Tokens prompt{1, 2, 3};
  const PrefixMatch match = MatchPrefix(prompt, {}, Tokens{1, 2, 3, 4}, std::nullopt);
  EXPECT_EQ(match.n_common, 3);
  EXPECT_EQ(match.n_pool, 2);
  EXPECT_EQ(match.n_reused(), 2);
}

TEST(MatchPrefix, OwnCellsWinWhenTheyReachAsFar) {
  const Tokens prompt{1, 2, 3, 4, 5};
  const PrefixMatch same = MatchPrefix(prompt, Tokens{1, 2, 9}, Tokens{1, 2, 8}, std::nullopt);
  EXPECT_EQ(same.n_own, 2);
  EXPECT_EQ(same.n_pool, 0);
  const PrefixMatch pool = MatchPrefix(prompt, Tokens{1, 9}, Tokens{1, 2, 3}, std::nullopt);
  EXPECT_EQ(pool.n_own, 0);
  EXPECT_EQ(pool.n_pool, 3);
}

TEST(MatchPrefix, AnExplicitLimitShortensTheShareOnly) {
  const Tokens prompt{1, 2, 3, 4, 5};
  const PrefixMatch match = MatchPrefix(prompt, {}, Tokens{1, 2, 3}, 2);
  EXPECT_EQ(match.n_common, 3);
  EXPECT_EQ(match.n_pool, 2);
}

}  // namespace
}  // namespace polykv
