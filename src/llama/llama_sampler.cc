#include "llama/llama_sampler.h"

#include <algorithm>
#include <cstddef>
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
               bool special)
      : backend_(backend),
        n_probs_(static_cast<size_t>(std::max(n_probs, 0))),
        post_sampling_probs_(post_sampling_probs),
        special_(special),
        sampler_(std::move(sampler)),
        grammar_(std::move(grammar)) {}

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

  void EndReasoning() override { common_sampler_reasoning_budget_force(sampler_.get()); }

 private:
  Token Draw(int32_t output_index) {
    const Token token = common_sampler_sample(sampler_.get(), backend_->context(), output_index);
    if (grammar_ == nullptr || grammar_->Allows(token)) return token;
    return grammar_->Sample(backend_->Logits(output_index), common_sampler_get(sampler_.get()));
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
  const common_sampler_ptr sampler_;
  const std::unique_ptr<GrammarFilter> grammar_;  // null: sampler_ has the grammar, if any
};

}  // namespace

std::unique_ptr<Sampler> MakeLlamaSampler(LlamaBackend& backend, common_params_sampling params,
                                          int32_t n_probs, bool post_sampling_probs, bool special) {
  params.backend_sampling = false;  // see LoadModel
  // Probabilities after sampling are read off common_sampler's own candidates.
  std::unique_ptr<GrammarFilter> grammar =
      post_sampling_probs ? nullptr : GrammarFilter::MakeOrNull(backend.vocab(), params);
  if (grammar != nullptr) params.grammar = {};
  common_sampler_ptr sampler(common_sampler_init(backend.model(), params));
  POLYKV_CHECK(sampler != nullptr);
  return std::make_unique<LlamaSampler>(&backend, std::move(sampler), std::move(grammar), n_probs,
                                        post_sampling_probs, special);
}

}  // namespace polykv
