// Sampling and the probabilities that go with it.
#include "llama/llama_sampler.h"

#include <cmath>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "integration/distribution.h"
#include "integration/test_model.h"
#include "sampling.h"

namespace polykv {
namespace {

class LlamaSamplerTest : public testing::Test {
 protected:
  LlamaSamplerTest() {
    StepBatch batch;
    for (const Token token : prompt_) {
      batch.push_back({token, static_cast<Pos>(batch.size()), 0, false});
    }
    batch.back().output = true;
    EXPECT_EQ(backend_->Decode(batch), DecodeStatus::kOk);
    output_index_ = static_cast<int32_t>(batch.size()) - 1;
  }

  SampledToken Sample(const common_params_sampling& params, int32_t n_probs = 0,
                      bool post_sampling_probs = false) {
    const auto sampler =
        MakeLlamaSampler(*backend_, params, n_probs, post_sampling_probs, /*special=*/false);
    sampler->AcceptPrompt(prompt_);
    return sampler->Sample(output_index_);
  }

  static common_params_sampling Greedy() {
    common_params_sampling params;
    params.temp = 0;
    return params;
  }

  std::unique_ptr<LlamaBackend> backend_ = LoadTestModel({.n_ctx = 256});
  std::vector<Token> prompt_ = backend_->Tokenize("The capital of France is", true, false);
  int32_t output_index_ = 0;
};

TEST_F(LlamaSamplerTest, GreedyIsTheMostProbableToken) {
  const SampledToken sampled = Sample(Greedy());
  EXPECT_EQ(static_cast<size_t>(sampled.token),
            FindTopTwo(LogSoftmax(backend_->Logits(output_index_))).token);
  EXPECT_TRUE(sampled.top.empty());
}

TEST_F(LlamaSamplerTest, ProbabilitiesBeforeSamplingAreTheModels) {
  const SampledToken sampled = Sample(Greedy(), 5);
  const Distribution distribution = LogSoftmax(backend_->Logits(output_index_));
  ASSERT_EQ(sampled.top.size(), 5U);
  EXPECT_EQ(sampled.top[0].token, sampled.token);
  EXPECT_EQ(sampled.top[0].text, backend_->TokenText(sampled.token, false));
  EXPECT_FLOAT_EQ(sampled.probability, sampled.top[0].probability);
  for (const TokenCandidate& candidate : sampled.top) {
    // llama-server sums over the vocabulary in single precision, and so do we.
    EXPECT_NEAR(candidate.probability, std::exp(distribution[static_cast<size_t>(candidate.token)]),
                1e-3);
  }
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_GE(sampled.top[i - 1].probability, sampled.top[i].probability);
  }
}

TEST_F(LlamaSamplerTest, ProbabilitiesAfterSamplingAreTheChains) {
  common_params_sampling params;
  params.temp = 1;
  params.top_k = 3;
  params.top_p = 1;
  params.min_p = 0;
  params.seed = 1;
  const SampledToken sampled = Sample(params, 10, /*post_sampling_probs=*/true);
  ASSERT_EQ(sampled.top.size(), 3U) << "top_k left three";
  float sum = 0;
  std::set<Token> tokens;
  for (const TokenCandidate& candidate : sampled.top) {
    sum += candidate.probability;
    tokens.insert(candidate.token);
    if (candidate.token == sampled.token) {
      EXPECT_EQ(candidate.probability, sampled.probability);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_TRUE(tokens.contains(sampled.token));
}

TEST_F(LlamaSamplerTest, ASeedMakesTheSameChoices) {
  common_params_sampling params;
  params.temp = 3;
  params.seed = 42;
  EXPECT_EQ(Sample(params).token, Sample(params).token);
}

TEST_F(LlamaSamplerTest, PenaltiesSeeThePrompt) {
  common_params_sampling params = Greedy();
  const Token favourite = Sample(params).token;
  params.penalty_last_n = 64;
  params.penalty_present = 100;
  EXPECT_EQ(Sample(params).token, favourite) << "it is not in the prompt";
  prompt_.push_back(favourite);
  EXPECT_NE(Sample(params).token, favourite);
}

TEST_F(LlamaSamplerTest, AGrammarIsObeyed) {
  common_params_sampling params = Greedy();
  params.grammar = {COMMON_GRAMMAR_TYPE_USER, "root ::= \"Zebra\""};
  const std::string text = backend_->TokenText(Sample(params).token, false);
  EXPECT_EQ(std::string("Zebra").rfind(text, 0), 0U) << text;
}

// Every token that our sampler chooses is what llama.cpp's own would choose there.
TEST_F(LlamaSamplerTest, GrammarsGiveWhatCommonSamplerGives) {
  constexpr const char* kGrammars[] = {
      R"(root ::= "{" [a-z ]+ ": " [0-9]+ (", " [a-z]+)* "}")",
      R"(root ::= ("Paris" | "London" | "Tokyo") ", " [A-Z] [a-z]+ ".")",
      R"(root ::= [^a-zA-Z]+)",
      R"(root ::= "{\"zebra\": \"quagga\"}")",
  };
  for (const char* grammar : kGrammars) {
    for (const float temperature : {0.0F, 0.8F, 2.0F}) {
      common_params_sampling params;
      params.temp = temperature;
      params.seed = 7;
      params.grammar = {COMMON_GRAMMAR_TYPE_USER, grammar};
      const auto ours = MakeLlamaSampler(*backend_, params, 0, false, false);
      const common_sampler_ptr reference(common_sampler_init(backend_->model(), params));
      ours->AcceptPrompt(prompt_);
      common_sampler_reset(reference.get());
      backend_->RemoveRange(0, static_cast<Pos>(prompt_.size()), kToEnd);
      auto pos = static_cast<Pos>(prompt_.size());
      backend_->RemoveRange(0, pos - 1, kToEnd);
      ASSERT_EQ(backend_->Decode({{prompt_.back(), pos - 1, 0, true}}), DecodeStatus::kOk);
      for (int i = 0; i < 20; ++i) {
        const Token expected = common_sampler_sample(reference.get(), backend_->context(), 0);
        const Token token = ours->Sample(0).token;
        ASSERT_EQ(token, expected) << grammar << " at temperature " << temperature << ", " << i;
        if (backend_->IsEndOfGeneration(token)) break;
        common_sampler_accept(reference.get(), expected, /*is_generated=*/true);
        ASSERT_EQ(backend_->Decode({{token, pos++, 0, true}}), DecodeStatus::kOk);
      }
    }
  }
}

TEST_F(LlamaSamplerTest, ThinkingEndsWhenItIsToldTo) {
  const auto tokens = [&](const char* text) { return backend_->Tokenize(text, false, true); };
  common_params_sampling params = Greedy();
  params.reasoning_budget_start = tokens("<think>");
  params.reasoning_budget_end = {tokens("</think>")};
  params.reasoning_budget_forced = tokens("</think>");
  params.generation_prompt = "<think>";
  const auto sample = [&](bool end_reasoning) {
    const auto sampler = MakeLlamaSampler(*backend_, params, 0, false, false);
    sampler->AcceptPrompt(prompt_);
    if (end_reasoning) sampler->EndReasoning();
    return sampler->Sample(output_index_).token;
  };
  const Token undisturbed = sample(false);
  EXPECT_EQ(sample(true), undisturbed) << "this was not asked for";
  params.reasoning_control = true;
  EXPECT_EQ(sample(false), undisturbed);
  EXPECT_EQ(sample(true), params.reasoning_budget_forced[0]);
  params.generation_prompt = "";
  EXPECT_EQ(sample(true), undisturbed) << "it is not thinking";
}

TEST_F(LlamaSamplerTest, BadParametersThrow) {
  common_params_sampling params = Greedy();
  params.grammar = {COMMON_GRAMMAR_TYPE_USER, "root ::= (unfinished"};
  EXPECT_THROW(Sample(params), std::exception);
  params = Greedy();
  params.penalty_repeat = 0;
  EXPECT_THROW(Sample(params), std::exception);
}

}  // namespace
}  // namespace polykv
