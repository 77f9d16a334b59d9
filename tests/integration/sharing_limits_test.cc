// Where sharing ends: the border of a window, a state that was taken back, a memory that is not
// what it is taken for.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "integration/distribution.h"
#include "integration/test_model.h"
#include "llama/cell_share.h"
#include "llama/memory_internals.h"
#include "llama/sharing_trial.h"
#include "pool/share_rule.h"

namespace polykv {
namespace {

// Decodes [from, size) of `tokens`; what follows the last one.
Distribution Decode(LlamaBackend& backend, SeqId seq, const std::vector<Token>& tokens, Pos from) {
  StepBatch batch;
  for (auto pos = from; pos < static_cast<Pos>(tokens.size()); ++pos) {
    batch.push_back(
        {.token = tokens[static_cast<size_t>(pos)], .pos = pos, .seq = seq, .output = false});
  }
  batch.back().output = true;
  EXPECT_EQ(backend.Decode(batch), DecodeStatus::kOk);
  return LogSoftmax(backend.Logits(static_cast<int32_t>(batch.size()) - 1));
}

TEST(WindowBorderTest, IsWhereTheNextTokenSeesTheLastCellThatIsLeft) {
  constexpr Pos kLength = 300;
  constexpr Pos kBorder = 95;
  constexpr double kRounding = 1e-7;
  const auto backend = LoadTestModel({.path = TinyModelPath("gemma3"),
                                      .n_ctx = 1024,
                                      .n_parallel = 6,
                                      .n_seq_max = 6,
                                      .n_ubatch = 32,
                                      .precise = true});
  const ModelInfo& info = backend->info();
  ASSERT_EQ(info.n_swa, 48);
  const std::vector<Token> text = DocumentTokens(*backend, 0, kLength);
  const auto prompt = [&](Pos length) {
    std::vector<Token> tokens(text.begin(), text.begin() + length);
    tokens.push_back(text[0]);
    return tokens;
  };
  std::vector<Distribution> plain;
  for (const Pos length : {kBorder, kBorder - 1}) {
    plain.push_back(Decode(*backend, 4, prompt(length), 0));
    backend->RemoveRange(4, 0, kToEnd);
  }
  Decode(*backend, 1, text, 0);
  // 512 cells for windows: these take 48 of the pool's, which no token behind it will see.
  Decode(*backend, 2, DocumentTokens(*backend, 1000, 200), 0);
  Decode(*backend, 3, DocumentTokens(*backend, 2000, 60), 0);
  ASSERT_EQ(backend->MinPos(1), kBorder - info.n_swa + 1);

  const auto verdict = [&](Pos wanted) {
    return ShareablePrefix({info.sharing, info.n_swa, kLength, backend->MinPos(1)}, wanted, true)
        .length;
  };
  EXPECT_EQ(verdict(kBorder), kBorder);
  EXPECT_EQ(verdict(kBorder - 1), 0);
  const auto difference = [&](Pos length, const Distribution& expected) {
    backend->ShareRange(1, 5, 0, length);
    const Distribution shared = Decode(*backend, 5, prompt(length), length);
    backend->RemoveRange(5, 0, kToEnd);
    return Divergence(expected, shared);
  };
  const double allowed = difference(kBorder, plain[0]);
  const double refused = difference(kBorder - 1, plain[1]);
  std::printf("window of %d: a share of %d differs by %.1e nats, of %d by %.1e\n", info.n_swa,
              kBorder, allowed, kBorder - 1, refused);
  EXPECT_LE(allowed, kRounding);
  EXPECT_GE(refused, 100 * kRounding);
}

TEST(SharingTrialTest, FindsAMemoryThatIsSharedWrongly) {
  const auto trial = [](const std::string& architecture, Sharing sharing) {
    const auto backend = LoadTestModel(
        {.path = TinyModelPath(architecture), .n_ctx = 256, .n_parallel = 4, .n_seq_max = 4});
    const bool correct = SharesCorrectly(*backend, sharing);
    EXPECT_EQ(backend->MinPos(1), -1);
    return correct;
  };
  EXPECT_TRUE(trial("gemma3", Sharing::kWindow));
  for (const char* architecture : {"jamba", "mamba", "lfm2"}) {
    SCOPED_TRACE(architecture);
    EXPECT_TRUE(trial(architecture, Sharing::kAtTip));
    EXPECT_FALSE(trial(architecture, Sharing::kAnyPosition)) << "shares a state of another length";
  }
}

// A context that keeps the states of a sequence's last tokens. The server never asks libllama for
// one so far.
class RollbackTest : public testing::Test {
 protected:
  RollbackTest() {
    const auto quiet = LoadTestModel({.path = path_, .n_ctx = 256});  // for its log and its text
    text_ = DocumentTokens(*quiet, 0, 60);
    model_.reset(llama_model_load_from_file(path_.c_str(), llama_model_default_params()));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_seq_max = 4;
    params.n_rs_seq = 4;
    params.kv_unified = true;
    context_.reset(llama_init_from_model(model_.get(), params));
  }

  Distribution Decode(SeqId seq, size_t begin, size_t end, Pos pos) {
    llama_batch batch = llama_batch_init(64, 0, 1);
    for (size_t i = begin; i < end; ++i) {
      const int32_t n = batch.n_tokens++;
      batch.token[n] = text_[i];
      batch.pos[n] = pos++;
      batch.n_seq_id[n] = 1;
      batch.seq_id[n][0] = seq;
      batch.logits[n] = i + 1 == end;
    }
    EXPECT_EQ(llama_decode(context_.get(), batch), 0);
    llama_batch_free(batch);
    const auto n_vocab =
        static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_.get())));
    return LogSoftmax({llama_get_logits_ith(context_.get(), -1), n_vocab});
  }

  llama_memory_t memory() const { return llama_get_memory(context_.get()); }

  const std::string path_ = TinyModelPath("lfm2");
  std::vector<Token> text_;
  llama_model_ptr model_;
  llama_context_ptr context_;
};

TEST_F(RollbackTest, AStateThatWasTakenBackIsShared) {
  Decode(3, 0, 38, 0);
  const Distribution expected = Decode(3, 50, 54, 38);
  Decode(0, 0, 40, 0);
  ASSERT_TRUE(RemoveCells(context_.get(), 0, 38, -1)) << "no kept states";
  EXPECT_TRUE(HasPendingRollback(memory(), 0));
  CloneCells(context_.get(), /*unified=*/true, 0, 1);
  ASSERT_TRUE(ShareCells(context_.get(), /*unified=*/true, 0, 2, 0, 38));
  for (const SeqId seq : {1, 2, 0}) {
    EXPECT_LE(Divergence(expected, Decode(seq, 50, 54, 38)), 1e-6) << "sequence " << seq;
  }
  EXPECT_FALSE(HasPendingRollback(memory(), 0));
}

TEST_F(RollbackTest, ASharedStateIsNotTakenBack) {
  Decode(3, 0, 40, 0);
  const Distribution expected = Decode(3, 50, 54, 40);
  Decode(0, 0, 40, 0);
  ASSERT_TRUE(ShareCells(context_.get(), /*unified=*/true, 0, 1, 0, 40));
  EXPECT_TRUE(SharesTip(memory(), 0));
  EXPECT_FALSE(RemoveCells(context_.get(), 1, 38, -1));
  EXPECT_FALSE(RemoveCells(context_.get(), 0, 38, -1));
  EXPECT_LE(Divergence(expected, Decode(1, 50, 54, 40)), 1e-6);
  EXPECT_FALSE(SharesTip(memory(), 1));
  EXPECT_TRUE(RemoveCells(context_.get(), 1, 42, -1)) << "its own by now";
  EXPECT_LE(Divergence(expected, Decode(0, 50, 54, 40)), 1e-6);
}

}  // namespace
}  // namespace polykv
