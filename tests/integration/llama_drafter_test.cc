// The draft model's cells follow the model's, whatever happens to the sequences. Here the model
// drafts for itself, so that a draft is right exactly if its cells are.
#include "llama/llama_drafter.h"

#include "gtest/gtest.h"
#include "integration/test_model.h"

namespace polykv {
namespace {

class LlamaDrafterTest : public testing::Test {
 protected:
  // A text that goes on in one way only, whatever the rounding.
  std::vector<Token> Counting(int first, int last) const {
    std::string text = "\n";
    for (int i = first; i < last; ++i) text += std::to_string(i) + (i + 1 < last ? ", " : ",");
    return backend_->Tokenize(text, false, false);
  }

  // Computes the tokens behind what `seq` holds and returns the sample after them.
  Token Compute(SeqId seq, const std::vector<Token>& tokens) {
    StepBatch batch;
    for (const Token token : tokens) {
      held_[seq].push_back(token);
      batch.push_back({token, static_cast<Pos>(held_[seq].size()) - 1, seq, /*output=*/false});
    }
    batch.back().output = true;
    EXPECT_EQ(backend_->Decode(batch), DecodeStatus::kOk);
    return MakeGreedySampler(*backend_)->Sample(static_cast<int32_t>(batch.size()) - 1).token;
  }

  void Share(SeqId src, SeqId dst, size_t n_tokens) {
    backend_->ShareRange(src, dst, 0, static_cast<Pos>(n_tokens));
    held_[dst].assign(held_[src].begin(),
                      held_[src].begin() + static_cast<std::ptrdiff_t>(n_tokens));
  }

  void Trim(SeqId seq, size_t n_tokens) {
    ASSERT_TRUE(backend_->RemoveRange(seq, static_cast<Pos>(n_tokens), kToEnd));
    held_[seq].resize(n_tokens);
  }

  std::vector<Token> Draft(SeqId seq, Token last) {
    DraftRequest request{.seq = seq, .tokens = &held_[seq], .last = last, .n_max = 6, .draft = {}};
    backend_->drafter()->Draft({&request, 1});
    return request.draft;
  }

  // The draft after `last` is what the model then says.
  void ExpectRightDraft(SeqId seq, Token last) {
    backend_->drafter()->Begin(seq, held_[seq]);
    const std::vector<Token> draft = Draft(seq, last);
    ASSERT_EQ(draft.size(), 6U);
    std::vector<Token> said;
    for (size_t i = 0; i < draft.size(); ++i) said.push_back(last = Compute(seq, {last}));
    EXPECT_EQ(draft, said);
  }

  std::unique_ptr<LlamaBackend> backend_ =
      LoadTestModel({.drafts = TestModelOptions::Drafts::kFromModel});
  std::map<SeqId, std::vector<Token>> held_;
};

TEST_F(LlamaDrafterTest, DraftsAfterAPromptAndAfterAnswers) {
  const Token last = Compute(0, Counting(100, 130));
  ExpectRightDraft(0, last);
  ExpectRightDraft(0, Compute(0, Counting(300, 330)));
}

TEST_F(LlamaDrafterTest, DraftsAfterSharedCells) {
  Compute(8, Counting(200, 220));
  Share(8, 4, held_[8].size() - 3);
  ExpectRightDraft(4, Compute(4, Counting(500, 530)));
  Trim(8, 0);
  ExpectRightDraft(4, Compute(4, Counting(700, 730)));
}

TEST_F(LlamaDrafterTest, DraftsAfterATrim) {
  Compute(0, Counting(100, 130));
  Trim(0, 20);
  ExpectRightDraft(0, Compute(0, Counting(400, 430)));
}

TEST_F(LlamaDrafterTest, WhatItMissedCostsTheDraftAndNothingElse) {
  const Token last = Compute(0, Counting(100, 130));
  Compute(1, Counting(100, 130));
  backend_->drafter()->RemoveRange(0, 10, kToEnd);
  backend_->drafter()->Begin(0, held_[0]);
  Draft(0, last);
  ExpectRightDraft(1, last);
  Compute(0, {last});
  Trim(0, 0);
  ExpectRightDraft(0, Compute(0, Counting(100, 130)));
}

}  // namespace
}  // namespace polykv
