#include "meter/throughput.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {

void Throughput::AddTokens(int32_t n, TimeUs now) {
  POLYKV_CHECK(count_ == 0 || now >= Back(0).at);
  if (n == 0 && IsSilent(now)) count_ = 0;
  const int64_t n_before = count_ == 0 ? 0 : Back(0).n_until;
  const bool goes_on = count_ > 0 && Back(0).at == now;
  if (!goes_on) ++count_;
  steps_[static_cast<size_t>((count_ - 1) % kSteps)] = {.at = now, .n_until = n_before + n};
}

double Throughput::TokensPerSecond(TimeUs now) const {
  const int64_t gaps = Gaps();
  if (gaps < 1 || IsSilent(now)) return 0;
  const auto n_tokens = static_cast<double>(Back(0).n_until - Back(gaps).n_until);
  const auto since_last = static_cast<double>(now - Back(0).at);
  return n_tokens / static_cast<double>(gaps) * 1e6 / std::max(StepUs(gaps), since_last);
}

int64_t Throughput::Gaps() const {
  const int64_t most = std::min(count_, kSteps) - 1;
  int64_t gaps = std::min(kMinGaps, most);
  while (gaps < most && Back(0).at - Back(gaps + 1).at <= kWindowUs) ++gaps;
  return gaps;
}

double Throughput::StepUs(int64_t n_gaps) const {
  return static_cast<double>(Back(0).at - Back(n_gaps).at) / static_cast<double>(n_gaps);
}

bool Throughput::IsSilent(TimeUs now) const {
  if (count_ == 0) return true;
  const TimeUs since_last = now - Back(0).at;
  if (since_last <= kWindowUs) return false;
  const int64_t gaps = Gaps();
  return gaps < 1 || static_cast<double>(since_last) > kMinGaps * StepUs(gaps);
}

}  // namespace polykv
