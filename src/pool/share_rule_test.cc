#include "pool/share_rule.h"

#include <gtest/gtest.h>

#include <string>

namespace polykv {
namespace {

Pos Shared(const ShareSource& source, Pos wanted) {
  return ShareablePrefix(source, wanted, /*tokens_remain=*/true).length;
}

std::string Reason(const ShareSource& source, Pos wanted, bool tokens_remain = true) {
  return ShareablePrefix(source, wanted, tokens_remain).reason;
}

TEST(ShareRuleTest, PlainAttentionSharesAnyLength) {
  const ShareSource source{.sharing = Sharing::kAnyPosition, .length = 100};
  for (const Pos wanted : {0, 1, 63, 99, 100}) EXPECT_EQ(Shared(source, wanted), wanted);
  EXPECT_EQ(ShareablePrefix(source, 100, /*tokens_remain=*/false).length, 100);
}

TEST(ShareRuleTest, AWindowThatIsWholeSharesAnyLength) {
  const ShareSource source{.sharing = Sharing::kWindow, .n_swa = 16, .length = 100, .min_pos = 0};
  for (const Pos wanted : {1, 15, 16, 17, 99, 100}) EXPECT_EQ(Shared(source, wanted), wanted);
}

TEST(ShareRuleTest, AWindowMustReachBackToWhatTheNextTokenSees) {
  const ShareSource source{.sharing = Sharing::kWindow, .n_swa = 16, .length = 100, .min_pos = 50};
  EXPECT_EQ(Shared(source, 65), 65);  // the token at 65 sees 50 to 65
  EXPECT_EQ(Shared(source, 64), 0);
  EXPECT_EQ(Reason(source, 64), "window");
  EXPECT_EQ(Reason(source, 1), "window");
  EXPECT_EQ(Reason(source, 65), "");
}

TEST(ShareRuleTest, WhatEverIsLeftOfAWindowIsEnoughForTheWholeSequence) {
  const ShareSource source{.sharing = Sharing::kWindow, .n_swa = 16, .length = 100, .min_pos = 85};
  EXPECT_EQ(Shared(source, 100), 100);
  EXPECT_EQ(Shared(source, 99), 0);
}

TEST(ShareRuleTest, ARecurrentStateIsOfTheWholeSequence) {
  const ShareSource source{.sharing = Sharing::kAtTip, .length = 100, .min_pos = 99};
  EXPECT_EQ(Shared(source, 100), 100);
  EXPECT_EQ(Shared(source, 99), 0);
  EXPECT_EQ(Reason(source, 99), "recurrent");
  EXPECT_EQ(Reason(source, 100, /*tokens_remain=*/false), "recurrent");
}

TEST(ShareRuleTest, NothingWantedHasNoReason) {
  const ShareSource source{.sharing = Sharing::kAtTip, .length = 100, .min_pos = 99};
  EXPECT_EQ(Shared(source, 0), 0);
  EXPECT_EQ(Reason(source, 0), "");
}

TEST(ShareRuleTest, NothingIsSharedWhereSharingIsOff) {
  const ShareSource source{.sharing = Sharing::kOff, .length = 100};
  EXPECT_EQ(Shared(source, 50), 0);
}

}  // namespace
}  // namespace polykv
