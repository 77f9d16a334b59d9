// What every kind of memory must do when it is shared, in a unified cache and in a split one. Like
// backend_conformance.h, for
//
//   INSTANTIATE_TEST_SUITE_P(Name, SharingConformanceTest, testing::Values(&MakeSubject, …));
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/backend_test.h"
#include "pool/share_rule.h"

namespace polykv {

// On a backend whose info() has any kind of sharing, n_ctx_seq >= 256, n_seq_max >= 6, a batch of
// 200 tokens and, if there is a window, one of 40 to 60 tokens.
class SharingConformanceTest : public BackendTest {
 protected:
  static constexpr Pos kLength = 120;  // of the pool; more than two windows
  static constexpr SeqId kPool = 0;
  static constexpr SeqId kSession = 1;
  static constexpr SeqId kOther = 2;
  static constexpr SeqId kScratch = 3;
  static constexpr SeqId kPlain = 4;
  static constexpr size_t kGenerated = 6;

  const ModelInfo& info() const { return backend_.info(); }
  bool at_tip() const { return info().sharing == Sharing::kAtTip; }

  ShareVerdict Ask(Pos wanted) const {
    return ShareablePrefix({.sharing = info().sharing,
                            .n_swa = info().n_swa,
                            .length = kLength,
                            .min_pos = backend_.MinPos(kPool)},
                           wanted, /*tokens_remain=*/true);
  }

  // The first `n` tokens of the pool, then a question.
  std::vector<Token> Prompt(Pos n, size_t variant) const {
    std::vector<Token> tokens = Text(kLength);
    tokens.resize(static_cast<size_t>(n));
    const std::vector<Token> question = Text(7, variant);
    tokens.insert(tokens.end(), question.begin(), question.end());
    return tokens;
  }

  std::vector<Token> Expected(Pos n, size_t variant) {
    return PlainContinuation(kPlain, Prompt(n, variant), kGenerated);
  }

  // What `seq`, which holds the first `n` tokens of the pool, says to that question.
  std::vector<Token> Answer(SeqId seq, Pos n, size_t variant) {
    EXPECT_EQ(Prefill(seq, Text(7, variant), n), DecodeStatus::kOk);
    return Continue(seq, n + 7, 7, kGenerated);
  }

  void FillPool() { ASSERT_EQ(Prefill(kPool, Text(kLength)), DecodeStatus::kOk); }

  // Others compute until they have taken all cells that nobody's window reaches.
  void DisturbWindows() {
    for (int i = 0; i < 2; ++i) {
      for (const SeqId seq : {kOther, kPlain}) {
        ASSERT_EQ(Prefill(seq, Text(200, 4)), DecodeStatus::kOk);
      }
      for (const SeqId seq : {kOther, kPlain}) {
        ASSERT_TRUE(backend_.RemoveRange(seq, 0, kToEnd));
      }
    }
  }

  std::vector<uint8_t> Save(SeqId seq) const {
    std::vector<uint8_t> bytes(backend_.StateSize(seq, StateParts::kAll));
    backend_.SaveState(seq, StateParts::kAll, bytes);
    return bytes;
  }
};

TEST_P(SharingConformanceTest, AWholeShareGoesOnAsThePlainTextAndLeavesThePoolAlone) {
  const std::vector<Token> first = Expected(kLength, 1);
  const std::vector<Token> second = Expected(kLength, 2);
  ASSERT_NE(first, second) << "the model does not look at its prompt";
  FillPool();
  DisturbWindows();
  ASSERT_EQ(Ask(kLength).length, kLength);
  for (const auto& [variant, expected] : {std::pair(1, &first), {2, &second}, {1, &first}}) {
    backend_.ShareRange(kPool, kSession, 0, kLength);
    EXPECT_EQ(Answer(kSession, kLength, static_cast<size_t>(variant)), *expected);
    EXPECT_TRUE(backend_.RemoveRange(kSession, 0, kToEnd));
  }
  EXPECT_EQ(Answer(kPool, kLength, 2), second);
}

TEST_P(SharingConformanceTest, TwoSharersDoNotSeeEachOther) {
  const std::vector<Token> first = Expected(kLength, 1);
  const std::vector<Token> second = Expected(kLength, 2);
  FillPool();
  backend_.ShareRange(kPool, kSession, 0, kLength);
  backend_.ShareRange(kPool, kOther, 0, kLength);
  ASSERT_EQ(Prefill(kSession, Text(7, 1), kLength), DecodeStatus::kOk);
  EXPECT_EQ(Answer(kOther, kLength, 2), second);
  ASSERT_TRUE(backend_.RemoveRange(kSession, 0, kToEnd));
  backend_.ShareRange(kPool, kSession, 0, kLength);
  EXPECT_TRUE(backend_.RemoveRange(kPool, 0, kToEnd));
  EXPECT_EQ(Answer(kSession, kLength, 1), first);
}

TEST_P(SharingConformanceTest, ASharedBeginningGoesOnAsThePlainText) {
  if (at_tip()) GTEST_SKIP() << "shares whole sequences";
  constexpr Pos kShared = 75;
  const std::vector<Token> expected = Expected(kShared, 3);
  FillPool();
  ASSERT_EQ(Ask(kShared).length, kShared);
  backend_.ShareRange(kPool, kSession, 0, kShared);
  EXPECT_EQ(subject_->Positions(kSession), Range(0, kShared));
  EXPECT_EQ(Answer(kSession, kShared, 3), expected);
  EXPECT_EQ(subject_->Positions(kPool), Range(0, kLength));
}

TEST_P(SharingConformanceTest, OthersTakeWhatNoWindowReaches) {
  if (info().sharing != Sharing::kWindow) GTEST_SKIP() << "no window";
  FillPool();
  EXPECT_EQ(backend_.MinPos(kPool), 0);
  DisturbWindows();
  if (!info().unified) {
    EXPECT_EQ(backend_.MinPos(kPool), 0) << "nobody else computes in its buffer";
    return;
  }
  const Pos min_pos = backend_.MinPos(kPool);
  EXPECT_GT(min_pos, 0);
  EXPECT_LE(min_pos, kLength - info().n_swa + 1);
  EXPECT_STREQ(Ask(min_pos).reason, "window");
  EXPECT_EQ(Ask(kLength).length, kLength);
}

TEST_P(SharingConformanceTest, ASharedWindowIsNotTaken) {
  if (info().sharing != Sharing::kWindow || !info().unified) GTEST_SKIP() << "no window to take";
  constexpr Pos kShared = 75;
  const std::vector<Token> expected = Expected(kShared, 3);
  FillPool();
  backend_.ShareRange(kPool, kSession, 0, kShared);
  DisturbWindows();
  EXPECT_EQ(backend_.MinPos(kSession), 0);
  EXPECT_EQ(Answer(kSession, kShared, 3), expected);
}

TEST_P(SharingConformanceTest, TrimmingASharerNeverChangesThePool) {
  const std::vector<Token> expected = Expected(kLength, 1);
  FillPool();
  const std::vector<Pos> positions = subject_->Positions(kPool);
  backend_.ShareRange(kPool, kSession, 0, kLength);
  EXPECT_EQ(backend_.RemoveRange(kSession, kLength - 2, kToEnd), !at_tip());
  EXPECT_EQ(subject_->Positions(kPool), positions);
  EXPECT_EQ(Answer(kPool, kLength, 1), expected);
}

TEST_P(SharingConformanceTest, APrivatePartIsParkedAndComesBack) {
  if (!info().unified) GTEST_SKIP() << "all of a sequence is private there";
  constexpr Pos kPrivate = 7;
  const std::vector<Token> expected = Expected(kLength, 1);
  FillPool();
  backend_.ShareRange(kPool, kSession, 0, kLength);
  ASSERT_EQ(Prefill(kSession, Text(kPrivate, 1), kLength), DecodeStatus::kOk);
  std::vector<Token> generated = Continue(kSession, kLength + kPrivate, kPrivate, 3);
  const Pos held = kLength + kPrivate + 2;
  backend_.ShareRange(kSession, kScratch, kLength, kToEnd);
  const std::vector<uint8_t> parked = Save(kScratch);
  EXPECT_TRUE(backend_.RemoveRange(kScratch, 0, kToEnd));
  EXPECT_TRUE(backend_.RemoveRange(kSession, 0, kToEnd));
  DisturbWindows();

  ASSERT_TRUE(backend_.LoadState(kScratch, StateParts::kAll, parked));
  backend_.ShareRange(kPool, kSession, 0, kLength);
  backend_.ShareRange(kScratch, kSession, kLength, kToEnd);
  EXPECT_TRUE(backend_.RemoveRange(kScratch, 0, kToEnd));
  ASSERT_EQ(Prefill(kSession, {generated.back()}, held), DecodeStatus::kOk);
  const std::vector<Token> rest = Continue(kSession, held + 1, 1, kGenerated - 3);
  generated.insert(generated.end(), rest.begin(), rest.end());
  EXPECT_EQ(generated, expected);
}

TEST_P(SharingConformanceTest, AShareCanBeSavedAtOnce) {
  const std::vector<Token> expected = Expected(kLength, 1);
  FillPool();
  backend_.ShareRange(kPool, kSession, 0, kLength);
  const std::vector<uint8_t> saved = Save(kSession);
  EXPECT_TRUE(backend_.RemoveRange(kSession, 0, kToEnd));
  EXPECT_TRUE(backend_.RemoveRange(kPool, 0, kToEnd));
  ASSERT_TRUE(backend_.LoadState(kOther, StateParts::kAll, saved));
  EXPECT_EQ(Answer(kOther, kLength, 1), expected);
}

TEST_P(SharingConformanceTest, WhatIsLoadedRightAfterAShareStays) {
  const std::vector<Token> expected = Expected(kLength, 1);
  FillPool();
  const std::vector<uint8_t> saved = Save(kPool);
  ASSERT_EQ(Prefill(kOther, Text(kLength, 4)), DecodeStatus::kOk);
  backend_.ShareRange(kOther, kSession, 0, kLength);
  ASSERT_TRUE(backend_.LoadState(kSession, StateParts::kAll, saved));
  EXPECT_EQ(Answer(kSession, kLength, 1), expected);
}

TEST_P(SharingConformanceTest, TheMemoriesSayWhatIsUsed) {
  const auto used = [this](const std::string& name) {
    for (const MemoryUse& use : backend_.MemoryUses()) {
      if (use.name == name) return use.used;
    }
    return -1;
  };
  FillPool();
  const bool has_cells = used("attn") >= 0;
  if (has_cells) {
    EXPECT_EQ(used("attn"), kLength);
    EXPECT_GE(backend_.HighestCell(), kLength);
  } else {
    EXPECT_EQ(backend_.HighestCell(), 0);
  }
  if (at_tip()) {
    EXPECT_EQ(used("recurrent"), 1);
  }
  backend_.ShareRange(kPool, kSession, 0, kLength);
  if (has_cells) {
    EXPECT_EQ(used("attn"), info().unified ? kLength : 2 * kLength);
  }
  for (const SeqId seq : {kPool, kSession}) EXPECT_TRUE(backend_.RemoveRange(seq, 0, kToEnd));
  EXPECT_EQ(backend_.HighestCell(), 0);
  for (const MemoryUse& use : backend_.MemoryUses()) {
    EXPECT_EQ(use.used, 0) << use.name;
    EXPECT_GT(use.total, 0) << use.name;
    EXPECT_GT(use.bytes, 0) << use.name;
  }
}

}  // namespace polykv
