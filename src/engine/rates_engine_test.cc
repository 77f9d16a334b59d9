// What the snapshot says of rates, under the manual clock.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

constexpr TimeUs kStepUs = 2'000'000;  // 0.5 tokens per second

class RatesEngineTest : public EngineTest {
 protected:
  void SetUp() override {
    Build(DefaultConfig(), {.n_ctx = 1024, .step_us = kStepUs, .token_us = 0});
  }
  Handle Spawn(const std::string& session) {
    return Submit({.prompt = session, .n_predict = 200, .attach = {.session_id = session}});
  }
};

TEST_F(RatesEngineTest, HalfATokenPerSecondIsMeasuredForEachAndForAll) {
  std::vector<Handle> handles;
  for (const char* name : {"one", "two", "three", "four"}) handles.push_back(Spawn(name));
  Step(2);
  EXPECT_EQ(RatesAt(*engine_->Snapshot(), clock_.NowUs()).n_warming, 4) << "first token, prefill";
  Step(10);
  const auto snapshot = engine_->Snapshot();
  const ServerRates rates = RatesAt(*snapshot, clock_.NowUs());
  double sum = 0;
  for (const SessionView& session : snapshot->sessions) {
    EXPECT_NEAR(session.tps, 0.5, 0.03 * 0.5);
    sum += session.tps;
  }
  EXPECT_EQ(rates.n_active, 4);
  EXPECT_NEAR(rates.mean_active_tps, 0.5, 0.03 * 0.5);
  EXPECT_NEAR(rates.aggregate_tps, sum, 0.02 * sum);
}

TEST_F(RatesEngineTest, AStallShowsAtOnceInASnapshotFromBefore) {
  Handle one = Spawn("one");
  Handle two = Spawn("two");
  Step(12);
  const auto snapshot = engine_->Snapshot();
  const TimeUs later = clock_.NowUs() + 5 * kStepUs / 2;
  EXPECT_NEAR(TpsAt(snapshot->sessions[0], later), 0.2, 0.001);
  EXPECT_NEAR(RatesAt(*snapshot, later).mean_active_tps, 0.2, 0.001);
  EXPECT_NEAR(RatesAt(*snapshot, later).aggregate_tps, 0.4, 0.002);
}

TEST_F(RatesEngineTest, ASnapshotThatIsAFewStepsOldIsNoStall) {
  Build(DefaultConfig(), {.n_ctx = 1024, .step_us = 5'000, .token_us = 0});
  Handle one = Spawn("one");
  Step(50);
  const TimeUs later = clock_.NowUs() + kSnapshotUs + 5'000;
  EXPECT_DOUBLE_EQ(TpsAt(engine_->Snapshot()->sessions[0], later), 200);
  EXPECT_DOUBLE_EQ(RatesAt(*engine_->Snapshot(), later).aggregate_tps, 200);
}

TEST_F(RatesEngineTest, NobodyDecodesNothingIsMeasured) {
  Handle one = Spawn("one");
  Finish(one);
  clock_.AdvanceUs(5 * kStepUs);
  const ServerRates rates = RatesAt(*engine_->Snapshot(), clock_.NowUs());
  EXPECT_EQ(rates.n_active + rates.n_warming, 0);
  EXPECT_EQ(rates.aggregate_tps, 0);
  EXPECT_EQ(rates.mean_active_tps, 0);
}

}  // namespace
}  // namespace polykv
