// What every ModelBackend must do: one suite, run on the fake and on libllama. A file that
// instantiates it includes this header and ends with
//
//   INSTANTIATE_TEST_SUITE_P(Name, BackendConformanceTest, testing::Values(&MakeSubject));
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conformance/backend_test.h"

namespace polykv {

// On a backend that is loaded for pooled embeddings too, whose info() has a unified cache, sharing
// at any position, 128 <= n_ctx <= 1024, n_seq_max >= 8, n_batch >= n_ctx / 2 and, if it computes
// in micro-batches, a small n_ubatch of 32 or more. It has a drafter that guesses that a text which
// is repeated goes on as before.
class BackendConformanceTest : public BackendTest {};

TEST_P(BackendConformanceTest, InfoIsWhatTheSuiteNeeds) {
  const ModelInfo& info = backend_.info();
  EXPECT_EQ(info.sharing, Sharing::kAnyPosition);
  EXPECT_EQ(info.sharing_reason, "");
  EXPECT_GE(info.n_ctx, 128);
  EXPECT_LE(info.n_ctx, 1024);
  EXPECT_GE(info.n_ctx_seq, info.n_ctx);
  EXPECT_GE(info.n_seq_max, 8);
  EXPECT_GE(info.n_batch, info.n_ctx / 2);
  EXPECT_GT(info.n_vocab, 0);
  EXPECT_GT(info.bytes_per_cell, 0);
  EXPECT_TRUE(info.generates);
  EXPECT_TRUE(info.pooled);
  EXPECT_GE(info.n_ubatch, 32);
}

TEST_P(BackendConformanceTest, AnEmptySequenceHasNoPositions) {
  EXPECT_EQ(subject_->CellsUsed(), 0);
  EXPECT_EQ(backend_.MinPos(0), -1);
  EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  EXPECT_EQ(subject_->CellsUsed(), 0);
}

TEST_P(BackendConformanceTest, ASharedCellIsCountedOnce) {
  ASSERT_EQ(Prefill(0, Text(40)), DecodeStatus::kOk);
  EXPECT_EQ(subject_->CellsUsed(), 40);
  backend_.ShareRange(0, 1, 0, 30);
  backend_.ShareRange(0, 2, 0, 40);
  EXPECT_EQ(subject_->CellsUsed(), 40);
  EXPECT_EQ(subject_->Positions(1), Range(0, 30));
  EXPECT_EQ(subject_->Positions(2), Range(0, 40));
  EXPECT_EQ(backend_.MinPos(1), 0);
}

TEST_P(BackendConformanceTest, AnEmptyRangeSharesNothing) {
  ASSERT_EQ(Prefill(0, Text(10)), DecodeStatus::kOk);
  backend_.ShareRange(0, 1, 5, 5);
  EXPECT_EQ(backend_.MinPos(1), -1);
}

TEST_P(BackendConformanceTest, RemovingASequenceFreesExactlyItsPrivateCells) {
  ASSERT_EQ(Prefill(0, Text(40)), DecodeStatus::kOk);
  backend_.ShareRange(0, 1, 0, 40);
  ASSERT_EQ(Prefill(1, Text(7, 1), 40), DecodeStatus::kOk);
  EXPECT_EQ(subject_->CellsUsed(), 47);
  EXPECT_TRUE(backend_.RemoveRange(1, 0, kToEnd));
  EXPECT_EQ(subject_->CellsUsed(), 40);
  EXPECT_EQ(subject_->Positions(0), Range(0, 40));
  EXPECT_EQ(backend_.MinPos(1), -1);
}

TEST_P(BackendConformanceTest, SharedCellsLiveAsLongAsAnySequenceHoldsThem) {
  const std::vector<Token> prefix = Text(40);
  const std::vector<Token> suffix = Text(5, 2);
  std::vector<Token> whole = prefix;
  whole.insert(whole.end(), suffix.begin(), suffix.end());
  const std::vector<Token> expected = PlainContinuation(3, whole, 8);

  ASSERT_EQ(Prefill(0, prefix), DecodeStatus::kOk);
  backend_.ShareRange(0, 1, 0, 40);
  EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  EXPECT_EQ(subject_->CellsUsed(), 40);
  EXPECT_EQ(backend_.MinPos(0), -1);
  ASSERT_EQ(Prefill(1, suffix, 40), DecodeStatus::kOk);
  EXPECT_EQ(Continue(1, 45, suffix.size(), 8), expected);
  EXPECT_TRUE(backend_.RemoveRange(1, 0, kToEnd));
  EXPECT_EQ(subject_->CellsUsed(), 0);
}

TEST_P(BackendConformanceTest, ACloneHoldsTheSameCellsAndGoesOnAlike) {
  const std::vector<Token> prompt = Text(40);
  const std::vector<Token> expected = PlainContinuation(0, prompt, 6);
  ASSERT_EQ(Prefill(0, prompt), DecodeStatus::kOk);
  backend_.CloneSequence(0, 1);
  EXPECT_EQ(subject_->CellsUsed(), 40);
  EXPECT_EQ(subject_->Positions(1), Range(0, 40));
  EXPECT_EQ(Continue(1, 40, 40, 6), expected);
  EXPECT_EQ(subject_->Positions(0), Range(0, 40));
}

TEST_P(BackendConformanceTest, ATrimmedSequenceGoesOnFromWhatItKept) {
  const std::vector<Token> kept = Text(30);
  const std::vector<Token> suffix = Text(6, 3);
  std::vector<Token> whole = kept;
  whole.insert(whole.end(), suffix.begin(), suffix.end());
  const std::vector<Token> expected = PlainContinuation(2, whole, 8);

  ASSERT_EQ(Prefill(0, Text(50)), DecodeStatus::kOk);
  ASSERT_TRUE(backend_.RemoveRange(0, 30, kToEnd));
  EXPECT_EQ(subject_->Positions(0), Range(0, 30));
  ASSERT_EQ(Prefill(0, suffix, 30), DecodeStatus::kOk);
  EXPECT_EQ(Continue(0, 36, suffix.size(), 8), expected);
}

TEST_P(BackendConformanceTest, TrimmingASharerLeavesTheOthersAlone) {
  ASSERT_EQ(Prefill(0, Text(40)), DecodeStatus::kOk);
  backend_.ShareRange(0, 1, 0, 40);
  EXPECT_TRUE(backend_.RemoveRange(1, 25, kToEnd));
  EXPECT_EQ(subject_->CellsUsed(), 40);
  EXPECT_EQ(subject_->Positions(0), Range(0, 40));
  EXPECT_EQ(subject_->Positions(1), Range(0, 25));
}

TEST_P(BackendConformanceTest, MinPosIsTheLowestPositionHeld) {
  ASSERT_EQ(Prefill(0, Text(20)), DecodeStatus::kOk);
  EXPECT_EQ(backend_.MinPos(0), 0);
  EXPECT_TRUE(backend_.RemoveRange(0, 0, 12));
  EXPECT_EQ(backend_.MinPos(0), 12);
  EXPECT_EQ(subject_->CellsUsed(), 8);
  backend_.ShareRange(0, 1, 15, 20);
  EXPECT_EQ(backend_.MinPos(1), 15);
}

TEST_P(BackendConformanceTest, AShiftMovesOneSequencesCells) {
  ASSERT_TRUE(backend_.info().can_shift);
  ASSERT_EQ(Prefill(0, Text(40)), DecodeStatus::kOk);
  ASSERT_EQ(Prefill(1, Text(40, 1)), DecodeStatus::kOk);
  ASSERT_TRUE(backend_.RemoveRange(0, 10, 25));
  backend_.ShiftPositions(0, 25, kToEnd, -15);
  EXPECT_EQ(subject_->Positions(0), Range(0, 25));
  EXPECT_EQ(subject_->Positions(1), Range(0, 40));
  EXPECT_EQ(subject_->CellsUsed(), 65);
  EXPECT_EQ(Prefill(0, Text(5, 2), 25), DecodeStatus::kOk);
  EXPECT_EQ(subject_->Positions(0), Range(0, 30));
}

TEST_P(BackendConformanceTest, AShiftThereAndBackChangesNothing) {
  const std::vector<Token> text = Text(40);
  const std::vector<Token> expected = PlainContinuation(2, text, 8);
  ASSERT_EQ(Prefill(0, {text.begin(), text.begin() + 30}), DecodeStatus::kOk);
  backend_.ShiftPositions(0, 20, 30, 50);
  std::vector<Pos> apart = Range(0, 20);
  for (const Pos pos : Range(70, 80)) apart.push_back(pos);
  EXPECT_EQ(subject_->Positions(0), apart);
  backend_.ShiftPositions(0, 70, kToEnd, -50);
  ASSERT_EQ(Prefill(0, {text.begin() + 30, text.end()}, 30), DecodeStatus::kOk);
  EXPECT_EQ(Continue(0, 40, 10, 8), expected);
}

TEST_P(BackendConformanceTest, NoAdaptersIsWhatADecodeStartsWith) {
  const std::vector<Token> expected = PlainContinuation(0, Text(20), 4);
  backend_.UseAdapters({});
  EXPECT_EQ(PlainContinuation(0, Text(20), 4), expected);
}

TEST_P(BackendConformanceTest, NoRoomChangesNothing) {
  const auto n_ctx = static_cast<size_t>(backend_.info().n_ctx);
  const size_t n_free = n_ctx / 4;
  const size_t n_filled = n_ctx - n_free;
  ASSERT_EQ(Prefill(0, Text(n_ctx / 2)), DecodeStatus::kOk);
  ASSERT_EQ(Prefill(1, Text(n_filled - n_ctx / 2)), DecodeStatus::kOk);
  backend_.ShareRange(0, 2, 0, 10);
  const auto n_used = static_cast<int32_t>(n_filled);

  EXPECT_EQ(Prefill(2, Text(n_free + 1, 1), 10), DecodeStatus::kNoRoom);
  EXPECT_EQ(Prefill(3, Text(n_ctx / 2, 1)), DecodeStatus::kNoRoom);
  EXPECT_EQ(subject_->CellsUsed(), n_used);
  EXPECT_EQ(subject_->Positions(2), Range(0, 10));
  EXPECT_EQ(backend_.MinPos(3), -1);

  EXPECT_EQ(Prefill(3, Text(n_free, 1)), DecodeStatus::kOk) << "every free cell is usable";
  EXPECT_EQ(subject_->CellsUsed(), backend_.info().n_ctx);
  EXPECT_TRUE(backend_.RemoveRange(3, 0, kToEnd));
  EXPECT_EQ(Prefill(2, Text(n_free, 1), 10), DecodeStatus::kOk);
}

TEST_P(BackendConformanceTest, ASharedSequenceGeneratesWhatAPlainOneDoes) {
  const std::vector<Token> prefix = Text(48);
  std::vector<std::vector<Token>> expected;
  for (size_t agent = 0; agent < 3; ++agent) {
    std::vector<Token> whole = prefix;
    const std::vector<Token> suffix = Text(6, agent + 1);
    whole.insert(whole.end(), suffix.begin(), suffix.end());
    expected.push_back(PlainContinuation(7, whole, 10));
  }
  ASSERT_EQ(Prefill(0, prefix), DecodeStatus::kOk);
  for (SeqId seq = 1; seq <= 3; ++seq) backend_.ShareRange(0, seq, 0, 48);
  for (SeqId seq = 1; seq <= 3; ++seq) {
    ASSERT_EQ(Prefill(seq, Text(6, static_cast<size_t>(seq)), 48), DecodeStatus::kOk);
    EXPECT_EQ(Continue(seq, 54, 6, 10), expected[static_cast<size_t>(seq) - 1]);
  }
}

TEST_P(BackendConformanceTest, SequencesInOneBatchDoNotSeeEachOther) {
  constexpr size_t kAgents = 3;
  constexpr size_t kGenerated = 6;
  std::vector<std::vector<Token>> expected;
  for (size_t agent = 0; agent < kAgents; ++agent) {
    expected.push_back(PlainContinuation(7, Text(12 + agent, agent), kGenerated));
  }
  std::vector<std::vector<Token>> generated(kAgents);
  std::vector<std::unique_ptr<Sampler>> samplers;
  StepBatch batch;
  std::vector<int32_t> outputs;
  for (size_t agent = 0; agent < kAgents; ++agent) {
    samplers.push_back(subject_->MakeGreedySampler());
    for (const Token token : Text(12 + agent, agent)) {
      const auto pos = static_cast<Pos>(batch.size()) - (outputs.empty() ? 0 : outputs.back() + 1);
      batch.push_back(
          {.token = token, .pos = pos, .seq = static_cast<SeqId>(agent), .output = false});
    }
    batch.back().output = true;
    outputs.push_back(static_cast<int32_t>(batch.size()) - 1);
  }
  for (size_t step = 0; step < kGenerated; ++step) {
    ASSERT_EQ(backend_.Decode(batch), DecodeStatus::kOk);
    batch.clear();
    for (size_t agent = 0; agent < kAgents; ++agent) {
      generated[agent].push_back(samplers[agent]->Sample(outputs[agent]).token);
      batch.push_back({.token = generated[agent].back(),
                       .pos = static_cast<Pos>(12 + agent + step),
                       .seq = static_cast<SeqId>(agent),
                       .output = true});
      outputs[agent] = static_cast<int32_t>(agent);
    }
  }
  EXPECT_EQ(generated, expected);
}

TEST_P(BackendConformanceTest, EverySequenceIdIsUsable) {
  const int32_t n_seq_max = backend_.info().n_seq_max;
  ASSERT_EQ(Prefill(0, Text(10)), DecodeStatus::kOk);
  for (SeqId seq = 1; seq < n_seq_max; ++seq) {
    backend_.ShareRange(0, seq, 0, 10);
    ASSERT_EQ(Prefill(seq, Text(1), 10), DecodeStatus::kOk);
    EXPECT_EQ(subject_->CellsUsed(), 10 + seq);
  }
  const SeqId last = n_seq_max - 1;
  EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  EXPECT_EQ(subject_->Positions(last), Range(0, 11));
  for (SeqId seq = 1; seq < n_seq_max; ++seq) backend_.RemoveRange(seq, 0, kToEnd);
  EXPECT_EQ(subject_->CellsUsed(), 0);
}

TEST_P(BackendConformanceTest, ASavedSequenceGoesOnInAnotherOne) {
  const std::vector<Token> saved = Text(30);
  const std::vector<Token> suffix = Text(6, 3);
  std::vector<Token> whole = saved;
  whole.insert(whole.end(), suffix.begin(), suffix.end());
  const std::vector<Token> expected = PlainContinuation(2, whole, 8);

  ASSERT_EQ(Prefill(0, saved), DecodeStatus::kOk);
  ASSERT_EQ(Prefill(1, Text(9, 1)), DecodeStatus::kOk);
  std::vector<uint8_t> bytes(backend_.StateSize(0, StateParts::kAll));
  backend_.SaveState(0, StateParts::kAll, bytes);
  EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  ASSERT_TRUE(backend_.LoadState(1, StateParts::kAll, bytes)) << "in place of what it held";
  EXPECT_EQ(subject_->CellsUsed(), 30);
  EXPECT_EQ(subject_->Positions(1), Range(0, 30));
  ASSERT_EQ(Prefill(1, suffix, 30), DecodeStatus::kOk);
  EXPECT_EQ(Continue(1, 36, suffix.size(), 8), expected);
}

TEST_P(BackendConformanceTest, AnEndThatWasSavedThroughAnotherSequenceComesBack) {
  const std::vector<Token> prompt = Text(30);
  const std::vector<Token> suffix = Text(6, 1);
  ASSERT_EQ(Prefill(0, prompt), DecodeStatus::kOk);
  ASSERT_EQ(Prefill(0, suffix, 30), DecodeStatus::kOk);
  const std::vector<Token> expected = Continue(0, 36, suffix.size(), 8);
  ASSERT_TRUE(backend_.RemoveRange(0, 36, kToEnd));

  backend_.ShareRange(0, 2, 12, kToEnd);
  std::vector<uint8_t> bytes(backend_.StateSize(2, StateParts::kAll));
  backend_.SaveState(2, StateParts::kAll, bytes);
  EXPECT_LT(bytes.size(), backend_.StateSize(0, StateParts::kAll));
  EXPECT_TRUE(backend_.RemoveRange(2, 0, kToEnd));
  EXPECT_TRUE(backend_.RemoveRange(0, 12, kToEnd));
  EXPECT_EQ(subject_->CellsUsed(), 12);
  ASSERT_EQ(Prefill(1, Text(40, 2)), DecodeStatus::kOk) << "others take the cells";

  ASSERT_TRUE(backend_.LoadState(2, StateParts::kAll, bytes));
  backend_.ShareRange(2, 0, 12, kToEnd);
  EXPECT_TRUE(backend_.RemoveRange(2, 0, kToEnd));
  EXPECT_EQ(subject_->Positions(0), Range(0, 36));
  EXPECT_EQ(subject_->CellsUsed(), 36 + 40);
  ASSERT_TRUE(backend_.RemoveRange(0, 30, kToEnd));
  ASSERT_EQ(Prefill(0, suffix, 30), DecodeStatus::kOk);
  EXPECT_EQ(Continue(0, 36, suffix.size(), 8), expected);
}

TEST_P(BackendConformanceTest, ALoadWithoutRoomLeavesTheOthersAlone) {
  const auto n_ctx = static_cast<size_t>(backend_.info().n_ctx);
  ASSERT_EQ(Prefill(0, Text(n_ctx / 2)), DecodeStatus::kOk);
  std::vector<uint8_t> bytes(backend_.StateSize(0, StateParts::kAll));
  backend_.SaveState(0, StateParts::kAll, bytes);
  ASSERT_EQ(Prefill(1, Text(10)), DecodeStatus::kOk);
  EXPECT_FALSE(backend_.LoadState(2, StateParts::kAll, bytes));
  EXPECT_TRUE(backend_.RemoveRange(2, 0, kToEnd));
  EXPECT_EQ(subject_->Positions(0), Range(0, static_cast<Pos>(n_ctx / 2)));
  EXPECT_EQ(subject_->Positions(1), Range(0, 10));
  EXPECT_EQ(subject_->CellsUsed(), static_cast<int32_t>(n_ctx / 2 + 10));
}

TEST_P(BackendConformanceTest, ABatchWithoutOutputsFillsCells) {
  StepBatch batch;
  for (const Token token : Text(9)) {
    batch.push_back(
        {.token = token, .pos = static_cast<Pos>(batch.size()), .seq = 0, .output = false});
  }
  EXPECT_EQ(backend_.Decode(batch), DecodeStatus::kOk);
  EXPECT_EQ(subject_->Positions(0), Range(0, 9));
}

TEST_P(BackendConformanceTest, SamplesGoAlongADraftAsFarAsItIsRight) {
  constexpr size_t kDraft = 3;
  const std::vector<Token> prompt = Text(20);
  const std::vector<Token> expected = PlainContinuation(1, prompt, kDraft + 3);
  for (size_t n_right = 0; n_right <= kDraft; ++n_right) {
    std::vector<Token> draft(expected.begin() + 1, expected.begin() + 1 + kDraft);
    if (n_right < kDraft) draft[n_right] = draft[n_right] == prompt[0] ? prompt[1] : prompt[0];
    ASSERT_EQ(Prefill(0, prompt), DecodeStatus::kOk);
    const std::unique_ptr<Sampler> sampler = subject_->MakeGreedySampler();
    ASSERT_EQ(sampler->Sample(19).token, expected[0]);
    StepBatch batch = {{.token = expected[0], .pos = 20, .seq = 0, .output = true}};
    for (const Token token : draft) {
      batch.push_back({.token = token, .pos = batch.back().pos + 1, .seq = 0, .output = true});
    }
    ASSERT_EQ(backend_.Decode(batch), DecodeStatus::kOk);
    const std::vector<SampledToken> sampled = sampler->SampleAlong(0, draft);
    ASSERT_EQ(sampled.size(), n_right + 1);
    for (size_t i = 0; i <= n_right; ++i) EXPECT_EQ(sampled[i].token, expected[i + 1]);

    const auto kept = static_cast<Pos>(21 + n_right);
    EXPECT_TRUE(backend_.RemoveRange(0, kept, kToEnd));
    EXPECT_EQ(subject_->CellsUsed(), kept);
    ASSERT_EQ(Prefill(0, {sampled.back().token}, kept), DecodeStatus::kOk);
    EXPECT_EQ(sampler->Sample(0).token, expected[n_right + 2]);
    EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  }
}

TEST_P(BackendConformanceTest, ADraftIsNoLongerThanWantedAndLeavesTheCellsAlone) {
  std::vector<Token> prompt = Text(30);
  const std::vector<Token> again(prompt.begin(), prompt.begin() + 15);
  prompt.insert(prompt.end(), again.begin(), again.end());
  ASSERT_EQ(Prefill(0, prompt), DecodeStatus::kOk);
  ASSERT_NE(backend_.drafter(), nullptr);
  Drafter& drafter = *backend_.drafter();
  EXPECT_GE(drafter.n_max(), 3);
  drafter.Begin(0, prompt);
  for (const int32_t n_max : {3, 1}) {
    DraftRequest request{
        .seq = 0, .tokens = &prompt, .last = prompt[15], .n_max = n_max, .draft = {}};
    drafter.Draft({&request, 1});
    EXPECT_EQ(request.draft.size(), static_cast<size_t>(n_max));
    EXPECT_EQ(subject_->Positions(0), Range(0, 45));
  }
  drafter.Accept(0, 1);
  EXPECT_EQ(subject_->CellsUsed(), 45);
}

TEST_P(BackendConformanceTest, EndingAThoughtThatIsNotThereChangesNothing) {
  EXPECT_EQ(Prefill(0, Text(12)), DecodeStatus::kOk);
  const std::unique_ptr<Sampler> sampler = subject_->MakeGreedySampler();
  const std::unique_ptr<Sampler> other = subject_->MakeGreedySampler();
  sampler->EndReasoning();
  EXPECT_EQ(sampler->Sample(11).token, other->Sample(11).token);
}

TEST_P(BackendConformanceTest, AVectorTellsWhatTheSequenceHolds) {
  const std::vector<std::vector<float>> alone = Embed({Text(8)});
  EXPECT_EQ(subject_->Positions(0), Range(0, 8));
  EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  const std::vector<std::vector<float>> together = Embed({Text(10, 1), Text(8), Text(8, 2)});
  EXPECT_EQ(subject_->CellsUsed(), 26);
  ASSERT_FALSE(alone[0].empty());
  for (const auto& vector : together) ASSERT_EQ(vector.size(), alone[0].size());
  const double length = Distance(alone[0], std::vector<float>(alone[0].size()));
  EXPECT_LT(Distance(together[1], alone[0]), 0.01 * length) << "the others in the batch show";
  EXPECT_GT(Distance(together[0], alone[0]), 0.05 * length);
  EXPECT_GT(Distance(together[2], alone[0]), 0.05 * length);
}

TEST_P(BackendConformanceTest, EmbeddingsDoNotDisturbGenerations) {
  const std::vector<Token> prompt = Text(20);
  const std::vector<Token> expected = PlainContinuation(5, prompt, 8);
  ASSERT_EQ(Prefill(5, {prompt.begin(), prompt.end() - 1}), DecodeStatus::kOk);
  Embed({Text(12, 1)});
  EXPECT_TRUE(backend_.RemoveRange(0, 0, kToEnd));
  EXPECT_EQ(subject_->Positions(5), Range(0, 19));
  ASSERT_EQ(Prefill(5, {prompt.back()}, 19), DecodeStatus::kOk);
  EXPECT_EQ(Continue(5, 20, 1, 8), expected);
}

TEST_P(BackendConformanceTest, AnEmbeddingWithoutRoomChangesNothing) {
  const auto n_ctx = static_cast<size_t>(backend_.info().n_ctx);
  ASSERT_EQ(Prefill(5, Text(n_ctx / 2)), DecodeStatus::kOk);
  ASSERT_EQ(Prefill(6, Text(n_ctx / 2 - 8)), DecodeStatus::kOk);
  StepBatch batch;
  for (const Token token : Text(9)) {
    batch.push_back(
        {.token = token, .pos = static_cast<Pos>(batch.size()), .seq = 0, .output = true});
  }
  EXPECT_EQ(backend_.Embed(batch), DecodeStatus::kNoRoom);
  EXPECT_EQ(backend_.MinPos(0), -1);
  batch.pop_back();
  EXPECT_EQ(backend_.Embed(batch), DecodeStatus::kOk);
}

TEST_P(BackendConformanceTest, TextSurvivesTokens) {
  const std::string text = "Two plus two\n is 4.";
  std::string back;
  for (const Token token : backend_.Tokenize(text, false, false)) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, backend_.info().n_vocab);
    EXPECT_FALSE(backend_.IsEndOfGeneration(token));
    back += backend_.TokenText(token, false);
  }
  EXPECT_EQ(back, text);
}

}  // namespace polykv
