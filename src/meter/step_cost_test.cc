#include "meter/step_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace polykv {
namespace {

// About a small model on two cores.
constexpr StepCost kTruth{.step_us = 5'000,
                          .decode_us = 1'100,
                          .prompt_us = 12'000,
                          .prefill_us = 2'200,
                          .cell_us = 3,
                          .wide_cell_us = 0.8};

StepShape Decodes(int32_t n, int64_t n_context) {
  return {.n_decode = n, .n_attended = n * n_context};
}

StepShape Mixed(int32_t n_decode, int32_t n_prefill, int64_t n_context) {
  return {.n_decode = n_decode,
          .n_prefill = n_prefill,
          .n_attended = (n_decode + n_prefill) * n_context};
}

// Steps of a server: mostly decode-only ones, at times a chunk, all `noise` off at random.
class Load {
 public:
  explicit Load(double noise) : noise_(1 - noise, 1 + noise) {}
  void Run(StepCostMeter& meter, const StepCost& truth, int n_steps) {
    for (int i = 0; i < n_steps; ++i) {
      const auto n_decode = static_cast<int32_t>(1 + random_() % 8);
      const auto n_context = static_cast<int64_t>(random_() % 4'000);
      const auto n_prefill =
          static_cast<int32_t>(random_() % 3 == 0 ? 16 * (1 + random_() % 16) : 0);
      const StepShape shape = Mixed(n_decode, n_prefill, n_context);
      meter.Add(shape, static_cast<TimeUs>(truth.Predict(shape) * noise_(random_)));
    }
  }

 private:
  std::mt19937 random_{301};
  std::uniform_real_distribution<double> noise_;
};

const StepShape kShapes[] = {Decodes(1, 100),    Decodes(4, 1'000),   Decodes(8, 4'000),
                             Mixed(1, 16, 100),  Mixed(4, 48, 3'000), Mixed(4, 64, 3'000),
                             Mixed(4, 128, 500), Mixed(2, 256, 2'000)};

TEST(StepCostTest, IsLinearWithABendWhereAttentionTakesTokensTogether) {
  EXPECT_DOUBLE_EQ(kTruth.Predict({}), 0);
  EXPECT_DOUBLE_EQ(kTruth.Predict(Decodes(2, 1'000)), 5'000 + 2'200 + 2'000 * 3);
  EXPECT_DOUBLE_EQ(kTruth.Predict(Mixed(1, 62, 1'000)),
                   5'000 + 1'100 + 12'000 + 62 * 2'200 + 63'000 * 3);
  EXPECT_DOUBLE_EQ(kTruth.Predict(Mixed(1, 63, 1'000)),
                   5'000 + 1'100 + 12'000 + 63 * 2'200 + 64'000 * 0.8);
}

TEST(StepCostMeterTest, LearnsWhatStepsTake) {
  StepCostMeter meter;
  Load(0.05).Run(meter, kTruth, 600);
  for (const StepShape& shape : kShapes) {
    EXPECT_NEAR(meter.cost().Predict(shape) / kTruth.Predict(shape), 1, 0.15)
        << shape.n_decode << " + " << shape.n_prefill;
  }
}

TEST(StepCostMeterTest, TheFirstStepsOfAKindComeNear) {
  StepCostMeter meter;
  for (int i = 0; i < 10; ++i) meter.Add(Decodes(4, 100), 10'000);
  EXPECT_NEAR(meter.cost().Predict(Decodes(4, 100)), 10'000, 500);
  for (int i = 0; i < 10; ++i) meter.Add(Mixed(4, 16, 100), 60'000);
  EXPECT_NEAR(meter.cost().Predict(Mixed(4, 16, 100)), 60'000, 3'000);
}

TEST(StepCostMeterTest, IsCautiousUntilItKnows) {
  StepCostMeter meter;
  for (const StepShape& shape : kShapes) EXPECT_GT(meter.AtMost(shape), 2 * kTruth.Predict(shape));
  Load(0.05).Run(meter, kTruth, 600);
  for (const StepShape& shape : kShapes) {
    EXPECT_LT(meter.AtMost(shape), 1.5 * kTruth.Predict(shape));
    EXPECT_GT(meter.AtMost(shape), 0.95 * kTruth.Predict(shape));
  }
}

TEST(StepCostMeterTest, AStepThatTookFarTooLongChangesLittle) {
  StepCostMeter meter;
  Load(0.05).Run(meter, kTruth, 600);
  const StepShape shape = Mixed(4, 128, 500);
  const double before = meter.cost().Predict(shape);
  meter.Add(shape, 60'000'000);
  EXPECT_NEAR(meter.cost().Predict(shape) / before, 1, 0.05);
  EXPECT_LT(meter.AtMost(shape), 2 * before);
}

TEST(StepCostMeterTest, FollowsAMachineThatHasBecomeSlowerOrFaster) {
  StepCost slow = kTruth;
  for (double* us : {&slow.step_us, &slow.decode_us, &slow.prompt_us, &slow.prefill_us,
                     &slow.cell_us, &slow.wide_cell_us}) {
    *us *= 3;
  }
  StepCostMeter meter;
  Load load(0.05);
  load.Run(meter, kTruth, 600);
  load.Run(meter, slow, 200);
  for (const StepShape& shape : kShapes) {
    EXPECT_NEAR(meter.cost().Predict(shape) / slow.Predict(shape), 1, 0.25);
  }
  load.Run(meter, kTruth, 200);
  for (const StepShape& shape : kShapes) {
    EXPECT_NEAR(meter.cost().Predict(shape) / kTruth.Predict(shape), 1, 0.25);
  }
}

TEST(StepCostMeterTest, NoCoefficientBecomesNegative) {
  StepCostMeter meter;
  for (int i = 0; i < 100; ++i) meter.Add(Mixed(4, 128, 500), i % 2 == 0 ? 0 : 1'000'000);
  const StepCost& cost = meter.cost();
  for (const double us : {cost.step_us, cost.decode_us, cost.prompt_us, cost.prefill_us,
                          cost.cell_us, cost.wide_cell_us}) {
    EXPECT_GT(us, 0);
  }
}

}  // namespace
}  // namespace polykv
