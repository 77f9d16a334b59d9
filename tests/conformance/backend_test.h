// What the conformance suites have in common: the backend under test and a way to feed it.
#pragma once

#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "gtest/gtest.h"
#include "kv/model_backend.h"

namespace polykv {

// A backend under test, and what the suite must know beyond its interface.
class ConformanceSubject {
 public:
  virtual ~ConformanceSubject() = default;

  // An empty backend as the suite wants it.
  virtual ModelBackend& backend() = 0;
  virtual std::unique_ptr<Sampler> MakeGreedySampler() = 0;
  virtual int32_t CellsUsed() const = 0;                    // counted in the cache itself
  virtual std::vector<Pos> Positions(SeqId seq) const = 0;  // that it holds, ascending
};

using MakeConformanceSubject = std::unique_ptr<ConformanceSubject> (*)();

class BackendTest : public testing::TestWithParam<MakeConformanceSubject> {
 protected:
  BackendTest() : subject_(GetParam()()), backend_(subject_->backend()) {}

  // `n` tokens of text; the same ones for the same arguments.
  std::vector<Token> Text(size_t n, size_t variant = 0) const {
    static constexpr const char* kWords[] = {"one river ", "a red house ", "seven small birds ",
                                             "to run, ", "under the old bridge. "};
    std::string text;
    std::vector<Token> tokens;
    for (size_t word = variant; tokens.size() < n; word = word * 7 + 3) {
      text += kWords[word % std::size(kWords)];
      tokens = backend_.Tokenize(text, false, false);
    }
    tokens.resize(n);
    return tokens;
  }

  // Computes `tokens` at positions from `pos` on in one Decode; output at the last one.
  DecodeStatus Prefill(SeqId seq, const std::vector<Token>& tokens, Pos pos = 0) {
    StepBatch batch;
    for (const Token token : tokens) {
      batch.push_back({.token = token, .pos = pos++, .seq = seq, .output = false});
    }
    batch.back().output = true;
    return backend_.Decode(batch);
  }

  // The greedy continuation of `seq`, which the last Decode, of `n_batch` tokens, brought up to
  // `pos`. The last token is sampled but not computed.
  std::vector<Token> Continue(SeqId seq, Pos pos, size_t n_batch, size_t n) {
    const std::unique_ptr<Sampler> sampler = subject_->MakeGreedySampler();
    std::vector<Token> generated;
    auto output_index = static_cast<int32_t>(n_batch) - 1;
    while (true) {
      generated.push_back(sampler->Sample(output_index).token);
      if (generated.size() == n) return generated;
      EXPECT_EQ(Prefill(seq, {generated.back()}, pos++), DecodeStatus::kOk);
      output_index = 0;
    }
  }

  // What a fresh sequence `seq` that is given `tokens` at once generates; it is empty afterwards.
  std::vector<Token> PlainContinuation(SeqId seq, const std::vector<Token>& tokens, size_t n) {
    EXPECT_EQ(Prefill(seq, tokens), DecodeStatus::kOk);
    const std::vector<Token> generated =
        Continue(seq, static_cast<Pos>(tokens.size()), tokens.size(), n);
    EXPECT_TRUE(backend_.RemoveRange(seq, 0, kToEnd));
    return generated;
  }

  // The pooled vectors of the prompts, computed in one batch in sequences 0, 1, …; their cells
  // stay.
  std::vector<std::vector<float>> Embed(const std::vector<std::vector<Token>>& prompts) {
    StepBatch batch;
    std::vector<int32_t> ends;
    for (const std::vector<Token>& prompt : prompts) {
      const auto seq = static_cast<SeqId>(ends.size());
      Pos pos = 0;
      for (const Token token : prompt) {
        batch.push_back({.token = token, .pos = pos++, .seq = seq, .output = true});
      }
      ends.push_back(static_cast<int32_t>(batch.size()) - 1);
    }
    EXPECT_EQ(backend_.Embed(batch), DecodeStatus::kOk);
    std::vector<std::vector<float>> vectors;
    for (size_t seq = 0; seq < prompts.size(); ++seq) {
      vectors.push_back(backend_.Vector(static_cast<SeqId>(seq), ends[seq]));
    }
    return vectors;
  }

  static double Distance(const std::vector<float>& a, const std::vector<float>& b) {
    double square = 0;
    for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(square);
  }

  static std::vector<Pos> Range(Pos p0, Pos p1) {
    std::vector<Pos> positions;
    for (Pos pos = p0; pos < p1; ++pos) positions.push_back(pos);
    return positions;
  }

  std::unique_ptr<ConformanceSubject> subject_;
  ModelBackend& backend_;
};

}  // namespace polykv
