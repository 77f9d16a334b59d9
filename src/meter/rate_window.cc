#include "meter/rate_window.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {

void RateWindow::AddTokens(int32_t n, TimeUs now) {
  const TimeUs before = count_ == 0 ? now : Stamp(0);
  POLYKV_CHECK(now >= before);
  for (int32_t i = 1; i <= n; ++i) {
    stamps_[static_cast<size_t>(count_ % kTokens)] = before + (now - before) * i / n;
    ++count_;
  }
}

void RateWindow::Skip(TimeUs duration) {
  for (TimeUs& stamp : stamps_) stamp += duration;
}

double RateWindow::TokensPerSecond(TimeUs now, TimeUs since) const {
  const int64_t max_gaps = std::min(count_, kTokens) - 1;
  if (max_gaps < kMinGaps || Stamp(kMinGaps) < since) return 0;
  int64_t gaps = kMinGaps;
  while (gaps < max_gaps && Stamp(gaps + 1) >= std::max(since, Stamp(0) - kWindowUs)) ++gaps;
  const auto span_us = static_cast<double>(std::max<TimeUs>(1, Stamp(0) - Stamp(gaps)));
  const double rate = static_cast<double>(gaps) * 1e6 / span_us;
  const auto since_last_us = static_cast<double>(now - Stamp(0));
  return since_last_us > 0 ? std::min(rate, 1e6 / since_last_us) : rate;
}

}  // namespace polykv
