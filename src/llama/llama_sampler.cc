#include "llama/llama_sampler.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "llama/grammar_filter.h"
#include "llama/token_probabilities.h"
#include "sampling.h"

namespace polykv {
namespace {

class LlamaSampler final : public Sampler {
 public:
  LlamaSampler(LlamaBackend* backend, common_sampler_ptr sampler,
               std::unique_ptr<GrammarFilter> grammar, int32_t n_probs, bool post_sampling_probs,
               bool special, bool is_slow, uint32_t seed)
      : backend_(backend),
        n_probs_(static_cast<size_t>(std::max(n_probs, 0))),
        post_sampling_probs_(post_sampling_probs),
        special_(special),
        is_slow_(is_slow),
        sampler_(std::move(sampler)),
        grammar_(std::move(grammar)),
        random_(seed) {}

  void AcceptPrompt(std::span<const Token> prompt) override {
    common_sampler_reset(sampler_.get());
    for (const Token token : prompt) {
      common_sampler_accept(sampler_.get(), token, /*is_generated=*/false);
    }
  }

  SampledToken Sample(int32_t output_index) override {
    SampledToken sampled;
    sampled.token = Draw(output_index);
    common_sampler_accept(sampler_.get(), sampled.token, /*is_generated=*/true);
    if (grammar_ != nullptr) grammar_->Accept(sampled.token);
    if (n_probs_ == 0) return sampled;
    if (post_sampling_probs_) {
      FillFromCandidates(&sampled);
    } else {
      FillFromLogits(output_index, &sampled);
    }
    return sampled;
  }

  std::vector<SampledToken> SampleAlong(int32_t output_index,
                                        std::span<const Token> draft) override {
    std::vector<SampledToken> sampled;
    for (size_t i = 0; i < draft.size(); ++i) {
      const bool agrees = SampleAt(output_index++, draft[i], i, &sampled.emplace_back());
      const bool ends = backend_->IsEndOfGeneration(draft[i]) && i + 1 < draft.size();
      if (!agrees || ends) return sampled;
    }
    sampled.push_back(Sample(output_index));
    return sampled;
  }

  bool is_slow() const override { return is_slow_; }

  void EndReasoning() override { common_sampler_reasoning_budget_force(sampler_.get()); }

 private:
  Token Draw(int32_t output_index) {
    const Token token = common_sampler_sample(sampler_.get(), backend_->context(), output_index);
    if (grammar_ == nullptr || grammar_->Allows(token)) return token;
    return grammar_->Sample(backend_->Logits(output_index), common_sampler_get(sampler_.get()));
  }

  // Whether the sample is the draft's token, which is at place `i` of it.
  bool SampleAt(int32_t output_index, Token guess, size_t i, SampledToken* sampled) {
    const LlamaDrafter* drafter = backend_->drafter();
    if (drafter == nullptr || drafter->synthetic_acceptance().empty()) {
      *sampled = Sample(output_index);
      return sampled->token == guess;
    }
    const Token own = Draw(output_index);
    const bool agrees = std::uniform_real_distribution<double>(0, 1)(random_) <
                            drafter->synthetic_acceptance()[i] &&
                        !backend_->IsEndOfGeneration(guess);
    sampled->token = agrees ? guess : own;
    // A token that the model did not choose may break the grammar, which does not get to see it.
    common_sampler_accept(sampler_.get(), sampled->token, /*is_generated=*/!agrees);
    if (!agrees && grammar_ != nullptr) grammar_->Accept(own);
    if (grammar_ != nullptr && !agrees) grammar_->Accept(own);
    return agrees;
  }

  void FillFromLogits(int32_t output_index, SampledToken* sampled) {
    const TokenProbabilities probabilities(backend_->Logits(output_index), n_probs_);
    sampled->probability = probabilities.Of(sampled->token);
    for (const auto& [token, probability] : probabilities.top()) Add(token, probability, sampled);
  }

  void FillFromCandidates(SampledToken* sampled) {
    const llama_token_data_array* candidates =
        common_sampler_get_candidates(sampler_.get(), /*do_sort=*/true);
    const std::span<const llama_token_data> sorted(candidates->data, candidates->size);
    for (const llama_token_data& candidate : sorted) {
      if (candidate.id == sampled->token) sampled->probability = candidate.p;
    }
    for (const llama_token_data& candidate : sorted.first(std::min(n_probs_, sorted.size()))) {
      if (candidate.p == 0.0F) break;  // some samplers leave zeros behind, others drop them
      Add(candidate.id, candidate.p, sampled);
    }
  }

  void Add(Token token, float probability, SampledToken* sampled) {
    sampled->top.push_back(
        {.token = token, .text = backend_->TokenText(token, special_), .probability = probability});
  }

  LlamaBackend* const backend_;
  const size_t n_probs_;
  const bool post_sampling_probs_;
  const bool special_;
  const bool is_slow_;
  const common_sampler_ptr sampler_;
  const std::unique_ptr<GrammarFilter> grammar_;  // null: sampler_ has the grammar, if any
  std::mt19937 random_;                           // of synthetic acceptance
};

}  // namespace

std::unique_ptr<Sampler> MakeLlamaSampler(LlamaBackend& backend, common_params_sampling params,
                                          int32_t n_probs, bool post_sampling_probs, bool special) {
  params.backend_sampling = false;  // see LoadModel
  // Probabilities after sampling are read off common_sampler's own candidates.
  std::unique_ptr<GrammarFilter> grammar =
      post_sampling_probs ? nullptr : GrammarFilter::MakeOrNull(backend.vocab(), params);
  const bool is_slow =
      !common_grammar_value(params.grammar).empty() || n_probs > 0 || params.top_k <= 0;
  if (grammar != nullptr) params.grammar = {};
  common_sampler_ptr sampler(common_sampler_init(backend.model(), params));
  POLYKV_CHECK(sampler != nullptr);
  return std::make_unique<LlamaSampler>(&backend, std::move(sampler), std::move(grammar), n_probs,
                                        post_sampling_probs, special, is_slow, params.seed);
}

}  // namespace polykv
