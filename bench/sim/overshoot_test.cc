// The run that the measured admission was made for; bench/sim_overshoot.py prints the same.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "sim/scenario_file.h"
#include "sim/simulation.h"

namespace polykv {
namespace {

Json ReadJson(const std::string& path) {
  std::ifstream file(std::string(POLYKV_SIM_FOLDER) + path);
  return Json::parse(file);
}

Scenario OvershootAt(const std::string& cost) {
  Json json = ReadJson("/scenarios/overshoot.json");
  json["cost"] = ReadJson("/costs/" + cost + ".json");
  return ReadScenario(json);
}

struct Figures {
  std::map<int32_t, double> rates;  // by agents: the raw mean at the first tick that saw so many
  int32_t most = 0;                 // agents
  double wall_s = 0;
  double under_s = 0;  // the mean is under the floor
  double deep_s = 0;   // under half of it
};

Figures FiguresOf(const Outcome& outcome) {
  Figures figures{.wall_s = static_cast<double>(outcome.ended) / 1e6};
  for (const Tick& tick : outcome.ticks) {
    figures.rates.emplace(tick.n_present, tick.raw_mean);
    figures.most = std::max(figures.most, tick.n_present + tick.n_sent);
  }
  const Series& series = outcome.series.at(0);
  for (size_t i = 0; i + 1 < series.samples.size(); ++i) {
    const Sample& sample = series.samples[i];
    const double seconds = static_cast<double>(series.samples[i + 1].at - sample.at) / 1e6;
    if (sample.mean_tps <= 0) continue;
    if (sample.mean_tps < series.floor) figures.under_s += seconds;
    if (sample.mean_tps < series.floor / 2) figures.deep_s += seconds;
  }
  return figures;
}

Figures Baseline(const std::string& cost) { return FiguresOf(Simulate(OvershootAt(cost))); }

Figures Measured(const std::string& cost) {
  Scenario scenario = OvershootAt(cost);
  AdmissionPolicy& policy = *scenario.pools.at(0).policy;
  policy.target_tps_per_session = *scenario.pools.at(0).floor;
  policy.mode = AdmissionPolicy::Mode::kEnforced;
  policy.on_saturation = AdmissionPolicy::OnSaturation::kQueue;
  policy.queue_timeout_ms = 10'000'000;
  scenario.groups.at(0).spawn = Spawn::kCapacity;
  return FiguresOf(Simulate(scenario));
}

TEST(OvershootTest, TheRawMeanOvershootsAsItDid) {
  const Figures figures = Baseline("seed");
  EXPECT_EQ(figures.most, 6);
  for (const auto& [n, rate] : {std::pair{2, 38.0}, std::pair{3, 31.7}, std::pair{4, 21.7},
                                std::pair{5, 15.9}, std::pair{6, 11.6}}) {
    ASSERT_TRUE(figures.rates.contains(n));
    EXPECT_NEAR(figures.rates.at(n), rate, 0.1 * rate) << n << " agents";
  }
}

TEST(OvershootTest, TheMeasuredAdmissionHoldsTheFloor) {
  const Figures before = Baseline("seed");
  const Figures after = Measured("seed");
  EXPECT_LE(after.under_s, (1 - 0.52) * before.under_s);
  EXPECT_LE(after.deep_s, (1 - 0.83) * before.deep_s);
  EXPECT_LE(after.wall_s, before.wall_s);
}

TEST(OvershootTest, OnAnotherModelItIsNoWorse) {
  const Figures before = Baseline("smollm2");
  const Figures after = Measured("smollm2");
  EXPECT_LE(after.under_s, before.under_s);
  EXPECT_LE(after.deep_s, before.deep_s);
}

}  // namespace
}  // namespace polykv
