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
  if (a.size() != b.size()) return true;
  double divergence = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double probability = std::exp(a[i]);
    if (probability != 0) divergence += probability * (a[i] - b[i]);
  }
  return !(divergence < kFar);
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
    const LogProbabilities whole_alone = Alone(kPoolLength);
    const LogProbabilities half_alone = half == kPoolLength ? whole_alone : Alone(half);

    Compute({{kPool, 0, 0, kPoolLength}});
    backend_.ShareRange(kPool, kWhole, 0, kPoolLength);
    backend_.ShareRange(kPool, kHalf, 0, half);
    const std::vector<LogProbabilities> shared =
        Compute({SuffixAt(kWhole, kPoolLength), SuffixAt(kHalf, half)});
    const std::vector<LogProbabilities> pool = Compute({SuffixAt(kPool, kPoolLength)});
    const bool is_far = AreFar(whole_alone, shared[0]) || AreFar(half_alone, shared[1]) ||
                        AreFar(whole_alone, pool[0]);
    for (const SeqId seq : {kPool, kWhole, kHalf}) backend_.RemoveRange(seq, 0, kToEnd);
    return !is_far;
  }

 private:
  // Tokens [first, first + n) of the text, for positions from `pos` on.
  struct Part {
    SeqId seq;
    Pos first;
    Pos pos;
    Pos n;
  };

  static Part SuffixAt(SeqId seq, Pos pos) { return {seq, kPoolLength, pos, kSuffixLength}; }

  LogProbabilities Alone(Pos length) {
    Compute({{kPlain, 0, 0, length}});
    LogProbabilities result = Compute({SuffixAt(kPlain, length)})[0];
    backend_.RemoveRange(kPlain, 0, kToEnd);
    return result;
  }

  // In one batch if it may be that large. What follows each part, empty if it cannot be computed.
  std::vector<LogProbabilities> Compute(const std::vector<Part>& parts) {
    std::vector<LogProbabilities> results;
    StepBatch batch;
    std::vector<int32_t> ends;
    const auto flush = [&] {
      const bool computed = batch.empty() || backend_.Decode(batch) == DecodeStatus::kOk;
      for (const int32_t end : ends) {
        results.push_back(computed ? Normalized(backend_.Logits(end)) : LogProbabilities());
      }
      batch.clear();
      ends.clear();
    };
    for (const Part& part : parts) {
      for (Pos i = 0; i < part.n; ++i) {
        const bool is_last = i + 1 == part.n;
        if (is_last) ends.push_back(static_cast<int32_t>(batch.size()));
        batch.push_back({.token = tokens_[static_cast<size_t>(part.first + i)],
                         .pos = part.pos + i,
                         .seq = part.seq,
                         .output = is_last});
        if (static_cast<int32_t>(batch.size()) == backend_.info().n_batch) flush();
      }
    }
    flush();
    return results;
  }

  LlamaBackend& backend_;
  std::vector<Token> tokens_;
};

}  // namespace

bool SharesCorrectly(LlamaBackend& backend, Sharing sharing) {
  return SharingTrial(backend).Run(sharing);
}

}  // namespace polykv
