#include "meter/throughput.h"

#include <algorithm>

#include "base/check.h"

namespace polykv {

void Throughput::AddTokens(int32_t n, TimeUs now) {
  POLYKV_CHECK(now >= last_);
  if (begin_ < 0 || now - last_ > kBuckets * kBucketUs) begin_ = now;
  last_ = now;
  const int64_t number = now / kBucketUs;
  Bucket& bucket = buckets_[static_cast<size_t>(number) % buckets_.size()];
  if (bucket.number != number) bucket = {.number = number};
  bucket.n_tokens += n;
}

double Throughput::TokensPerSecond(TimeUs now) const {
  if (begin_ < 0) return 0;
  const int64_t newest = now / kBucketUs;
  int64_t n_tokens = 0;
  for (const Bucket& bucket : buckets_) {
    const bool recent = bucket.number > newest - kBuckets && bucket.number <= newest;
    if (recent) n_tokens += bucket.n_tokens;
  }
  const TimeUs window_begin = (newest - kBuckets + 1) * kBucketUs;
  const TimeUs span = std::max(kBucketUs, now - std::max(begin_, window_begin));
  return static_cast<double>(n_tokens) * 1e6 / static_cast<double>(span);
}

}  // namespace polykv
