#include "tree/meter_cost.h"

#include <algorithm>
#include <limits>

#include "admission/settle.h"
#include "base/check.h"
#include "base/clock.h"
#include "meter/histogram.h"
#include "meter/rate_window.h"
#include "meter/throughput.h"
#include "tree/report.h"

namespace polykv {
namespace {

constexpr double kNsPerUs = 1'000;
constexpr TimeUs kTokenUs = 10'000;
constexpr SettleTracker::Key kSession = 1;

// Of one call of `work(now)` for each token of a stream, the best of the rounds.
template <typename Work>
double NsPerToken(const MeterCostPlan& plan, Work work) {
  const SteadyClock clock;
  double best = std::numeric_limits<double>::infinity();
  TimeUs now = 0;
  for (int32_t round = 0; round < plan.rounds; ++round) {
    const TimeUs begin = clock.NowUs();
    for (int32_t i = 0; i < plan.tokens; ++i) work(now += kTokenUs);
    best = std::min(best, static_cast<double>(clock.NowUs() - begin) * kNsPerUs / plan.tokens);
  }
  return best;
}

}  // namespace

void MeasureMeterCost(const MeterCostPlan& plan) {
  Say("meters, %d tokens", plan.tokens);
  RateWindow rate;
  Throughput throughput;
  LatencyMeters latency;
  SettleTracker settle;
  settle.Admit(kSession, {}, 0);
  const double token_ns = NsPerToken(plan, [&](TimeUs now) {
    latency.inter_token.Add(rate.SinceLast(now));
    rate.AddToken(now);
    throughput.AddTokens(1, now);
    settle.AddTokens(kSession, 1, now);
  });
  double sum = 0;
  const TimeUs last = kTokenUs * plan.tokens * plan.rounds;
  const double look_ns =
      NsPerToken(plan, [&](TimeUs now) { sum += rate.TokensPerSecond(last + now % 2); });
  POLYKV_CHECK(sum > 0);
  Row("meter").Add("what", "token").Add("ns", token_ns);
  Row("meter").Add("what", "look").Add("ns", look_ns);
}

}  // namespace polykv
