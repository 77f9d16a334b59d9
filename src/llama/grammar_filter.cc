#include "llama/grammar_filter.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>

namespace polykv {
namespace {

constexpr int32_t kMostWanted = 1'024;  // a larger top-k is nearly the whole vocabulary anyway
constexpr size_t kFirstLook = 128;      // candidates that are asked about at first
constexpr size_t kWiden = 8;            // times as many the second time; then all

bool TouchesLogits(enum common_sampler_type type, const common_params_sampling& params) {
  switch (type) {
    case COMMON_SAMPLER_TYPE_PENALTIES:
      return params.penalty_repeat != 1.0F || params.penalty_freq != 0.0F ||
             params.penalty_present != 0.0F;
    case COMMON_SAMPLER_TYPE_DRY:
      return params.dry_multiplier != 0.0F;
    case COMMON_SAMPLER_TYPE_TOP_N_SIGMA:
      return params.top_n_sigma > 0.0F;
    default:
      return true;
  }
}

// Whether the chain sees nothing but the top-k of the unchanged logits.
bool BeginsWithTopK(const llama_vocab* vocab, const common_params_sampling& params) {
  int32_t n_suppressed = 0;
  llama_vocab_get_suppress_tokens(vocab, &n_suppressed);
  if (params.mirostat != 0 || n_suppressed > 0 || !params.logit_bias.empty()) return false;
  if (params.top_k <= 0 || params.top_k > kMostWanted) return false;
  for (const enum common_sampler_type type : params.samplers) {
    if (type == COMMON_SAMPLER_TYPE_TOP_K) return true;
    if (TouchesLogits(type, params)) return false;
  }
  return false;
}

bool HasReasoningBudget(const common_params_sampling& params) {
  return !params.reasoning_budget_start.empty() && !params.reasoning_budget_end.empty() &&
         (params.grammar_lazy || params.reasoning_budget_tokens >= 0 || params.reasoning_control);
}

// The part of the answer that the chat template has already written (common_sampler_init).
std::vector<Token> WrittenTokens(const llama_vocab* vocab, const common_params_sampling& params) {
  const std::string& written = params.generation_prompt;
  if (written.empty() || !common_grammar_needs_prefill(params.grammar)) return {};
  std::vector<Token> tokens = common_tokenize(vocab, written, false, true);
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  const std::string first =
      tokens.empty() ? "" : common_token_to_piece(vocab, tokens.front(), true);
  const bool added_space = !first.empty() && is_space(first[0]) && !is_space(written[0]);
  if (added_space) tokens.erase(tokens.begin());
  return tokens;
}

}  // namespace

std::unique_ptr<GrammarFilter> GrammarFilter::MakeOrNull(const llama_vocab* vocab,
                                                         const common_params_sampling& params) {
  const std::string& text = common_grammar_value(params.grammar);
  if (text.empty() || text.starts_with("%llguidance") || params.grammar_lazy) return nullptr;
  if (HasReasoningBudget(params) || !BeginsWithTopK(vocab, params)) return nullptr;
  llama_sampler_ptr grammar(llama_sampler_init_grammar(vocab, text.c_str(), "root"));
  if (grammar == nullptr) throw std::runtime_error("failed to parse grammar");
  for (const Token token : WrittenTokens(vocab, params)) {
    llama_sampler_accept(grammar.get(), token);
  }
  const bool greedy = params.temp <= 0.0F && params.dynatemp_range <= 0.0F;
  return std::unique_ptr<GrammarFilter>(
      new GrammarFilter(std::move(grammar), greedy ? 1 : static_cast<size_t>(params.top_k)));
}

GrammarFilter::GrammarFilter(llama_sampler_ptr grammar, size_t n_wanted)
    : grammar_(std::move(grammar)), n_wanted_(n_wanted) {}

bool GrammarFilter::Allows(Token token) const {
  llama_token_data candidate = {token, 1.0F, 0.0F};
  llama_token_data_array one = {&candidate, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &one);
  return !std::isinf(candidate.logit);
}

void GrammarFilter::Accept(Token token) { llama_sampler_accept(grammar_.get(), token); }

Token GrammarFilter::Sample(std::span<const float> logits, llama_sampler* chain) {
  FindLegal(logits);
  if (legal_.empty()) throw std::runtime_error("the grammar allows no token here");
  llama_token_data_array candidates = {legal_.data(), legal_.size(), -1, false};
  llama_sampler_apply(chain, &candidates);
  return candidates.data[candidates.selected].id;
}

void GrammarFilter::FindLegal(std::span<const float> logits) {
  ordered_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    ordered_[i] = {static_cast<Token>(i), logits[i], 0.0F};
  }
  legal_.clear();
  const size_t first_look = std::max(kFirstLook, 2 * n_wanted_);
  auto first = ordered_.begin();
  for (const size_t look : {first_look, first_look * kWiden, ordered_.size()}) {
    if (legal_.size() >= n_wanted_ || first == ordered_.end()) return;
    const auto n_left = static_cast<size_t>(ordered_.end() - first);
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(look, n_left));
    if (last != ordered_.end()) {
      std::partial_sort(first, last, ordered_.end(),
                        [](const auto& a, const auto& b) { return a.logit > b.logit; });
    }
    llama_token_data_array asked = {&*first, static_cast<size_t>(last - first), -1, false};
    llama_sampler_apply(grammar_.get(), &asked);
    std::copy_if(first, last, std::back_inserter(legal_),
                 [](const llama_token_data& candidate) { return !std::isinf(candidate.logit); });
    first = last;
  }
}

}  // namespace polykv
