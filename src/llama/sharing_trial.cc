#include "llama/sharing_trial.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "llama/llama_backend.h"

namespace polykv {
namespace {

constexpr Pos kPoolLength = 32;
constexpr Pos kSuffixLength = 4;
constexpr SeqId kPlain = 0;
constexpr SeqId kPool = 1;
constexpr SeqId kWhole = 2;
constexpr SeqId kHalf = 3;

// Nats. Another order of the same sums makes up to 0.01 on a model of few bits, another context
// some tenths at least.
constexpr double kFar = 0.1;

using LogProbabilities = std::vector<double>;
using Answers = std::vector<LogProbabilities>;

LogProbabilities Normalized(std::span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  LogProbabilities result;
  for (const float logit : logits) result.push_back(logit - max - std::log(sum));
  return result;
}

// Also true if one of them is no distribution at all.
bool AreFar(const LogProbabilities& a, const LogProbabilities& b) {
  double divergence = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double probability = std::exp(a[i]);
    if (probability != 0) divergence += probability * (a[i] - b[i]);
  }
  return !(divergence < kFar);
}

// Also true if there are not as many.
bool AreFar(const Answers& a, const Answers& b) {
  return !std::equal(a.begin(), a.end(), b.begin(), b.end(),
                     [](const auto& x, const auto& y) { return !AreFar(x, y); });
}

class SharingTrial {
 public:
  explicit SharingTrial(LlamaBackend& backend) : backend_(backend) {
    const std::string text =
        "The sun had set behind the hills when the old man came back to the house with a basket of "
        "red apples, which he put on the table. His daughter asked where he had been all day, and "
        "why his shoes were wet.";
    tokens_ = backend.Tokenize(text, /*add_special=*/true, /*parse_special=*/false);
    while (tokens_.size() < kPoolLength + kSuffixLength) tokens_.push_back(tokens_.back());
  }

  bool Run(Sharing sharing) {
    const Pos half = sharing == Sharing::kAtTip ? kPoolLength : kPoolLength / 2;
    Answers alone = Alone(kPoolLength);
    const Answers of_pool = alone;
    const Answers half_alone = half == kPoolLength ? alone : Alone(half);
    alone.insert(alone.end(), half_alone.begin(), half_alone.end());

    Compute({Text(kPool, kPoolLength)});
    backend_.ShareRange(kPool, kWhole, 0, kPoolLength);
    backend_.ShareRange(kPool, kHalf, 0, half);
    const Answers shared = Compute({Suffix(kWhole, kPoolLength), Suffix(kHalf, half)});
    const bool is_far =
        AreFar(alone, shared) || AreFar(of_pool, Compute({Suffix(kPool, kPoolLength)}));
    for (const SeqId seq : {kPool, kWhole, kHalf}) backend_.RemoveRange(seq, 0, kToEnd);
    return !is_far;
  }

 private:
  // Tokens [first, first + n) of the text, at positions from `pos` on.
  struct Part {
    SeqId seq;
    Pos first;
    Pos pos;
    Pos n;
    bool asks;  // what follows its first and its last token: some states forget within four
  };

  static Part Text(SeqId seq, Pos length) { return {seq, 0, 0, length, false}; }
  static Part Suffix(SeqId seq, Pos pos) { return {seq, kPoolLength, pos, kSuffixLength, true}; }

  Answers Alone(Pos length) {
    Compute({Text(kPlain, length)});
    Answers answers = Compute({Suffix(kPlain, length)});
    backend_.RemoveRange(kPlain, 0, kToEnd);
    return answers;
  }

  // In one batch if it may be that large. Fewer answers if something cannot be computed.
  Answers Compute(const std::vector<Part>& parts) {
    Answers answers;
    StepBatch batch;
    const auto flush = [&] {
      if (batch.empty()) return;
      const bool computed = backend_.Decode(batch) == DecodeStatus::kOk;
      for (size_t i = 0; computed && i < batch.size(); ++i) {
        if (!batch[i].output) continue;
        answers.push_back(Normalized(backend_.Logits(static_cast<int32_t>(i))));
      }
      batch.clear();
    };
    for (const Part& part : parts) {
      for (Pos i = 0; i < part.n; ++i) {
        batch.push_back({.token = tokens_[static_cast<size_t>(part.first) + static_cast<size_t>(i)],
                         .pos = part.pos + i,
                         .seq = part.seq,
                         .output = part.asks && (i == 0 || i + 1 == part.n)});
        if (static_cast<int32_t>(batch.size()) == backend_.info().n_batch) flush();
      }
    }
    flush();
    return answers;
  }

  LlamaBackend& backend_;
  std::vector<Token> tokens_;
};

}  // namespace

bool SharesCorrectly(LlamaBackend& backend, Sharing sharing) {
  return SharingTrial(backend).Run(sharing);
}

}  // namespace polykv
