#include "admission/judge.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr TimeUs kNow = 100'000'000;
constexpr TimeUs kSecond = 1'000'000;

class JudgeTest : public ::testing::Test {
 protected:
  JudgeTest() {
    policy_.target_tps_per_session = 10;
    question_.policy = &policy_;
    question_.governed = {
        .n_attached = 3, .n_running = 3, .mean_tps = 20, .mean_private_cells = 100};
    question_.server = {.n_decoding = 3,
                        .n_running = 3,
                        .cells_total = 8192,
                        .cells_available = 4096,
                        .seq_ids_free = 4};
  }
  Verdict Ask() const { return Judge(question_, kNow); }
  std::string Reason() const { return Ask().reason; }

  AdmissionPolicy policy_;
  Question question_;
};

TEST_F(JudgeTest, AdmitsWhereNothingSpeaksAgainstIt) {
  const Verdict verdict = Ask();
  EXPECT_TRUE(verdict.can_admit);
  EXPECT_EQ(verdict.reason, "");
  EXPECT_DOUBLE_EQ(*verdict.projected_mean_tps, 15);  // 20 · 3 / 4
  EXPECT_FALSE(verdict.projected_by_measure.has_value());
  EXPECT_EQ(verdict.headroom_by_tps, 3);  // 20 · 3 / 6 = 10
  EXPECT_EQ(verdict.headroom_by_cells, 40);
  EXPECT_EQ(verdict.headroom(), 3);
  EXPECT_DOUBLE_EQ(verdict.kv_headroom_pct, 50);
}

TEST_F(JudgeTest, AKnownSessionIsNeverGated) {
  question_.applicant.known_session = true;
  question_.server.cells_available = 0;
  question_.server.seq_ids_free = 0;
  question_.governed.mean_tps = 1;
  EXPECT_TRUE(Ask().can_admit);
  EXPECT_EQ(Reason(), "known session");
}

TEST_F(JudgeTest, TheContextArmIsHard) {
  question_.governed.n_attached = 0;  // even for the guaranteed minimum
  question_.applicant.overcommit = true;
  question_.applicant.expected_tokens = 4096;
  EXPECT_TRUE(Ask().can_admit);
  question_.applicant.expected_tokens = 4097;
  EXPECT_EQ(Reason(), "context headroom exhausted");
  question_.applicant.expected_tokens = {};
  question_.applicant.n_uncached = 4096 - 64;
  EXPECT_TRUE(Ask().can_admit);
  question_.applicant.n_uncached = 4096 - 63;
  EXPECT_FALSE(Ask().can_admit);
  question_.applicant.n_uncached = 0;
  question_.server.seq_ids_free = 0;
  EXPECT_EQ(Reason(), "no free sequence");
  question_.server.streams_free = 0;
  EXPECT_EQ(Reason(), "no free stream (split cache)");
}

TEST_F(JudgeTest, TheGuaranteedMinimumGoesPastTheFloor) {
  question_.governed.mean_tps = 1;
  policy_.guarantee_min_sessions = 4;
  EXPECT_EQ(Reason(), "guaranteed minimum");
  EXPECT_TRUE(Ask().guaranteed);
  question_.governed.n_attached = 4;
  EXPECT_FALSE(Ask().can_admit);
  EXPECT_FALSE(Ask().guaranteed);
}

TEST_F(JudgeTest, WaitsWhileAnAdmissionSettles) {
  question_.forecast = {.n_unsettled = 1, .settle_remaining_us = 7};
  EXPECT_EQ(Reason(), "measurement settling");
  EXPECT_EQ(Ask().settle_remaining_us, 7);
  question_.applicant.overcommit = true;
  EXPECT_EQ(Reason(), "overcommit");
  question_.applicant.overcommit = false;
  question_.applicant.waited_out = true;
  EXPECT_TRUE(Ask().can_admit);
}

TEST_F(JudgeTest, EveryUnsettledAdmissionIsCharged) {
  question_.applicant.waited_out = true;
  question_.forecast = {.n_unsettled = 2,
                        .gap_per_session = 0.012,
                        .settled_mean = 20,
                        .settled_running = 1,
                        .settled_at = kNow};
  question_.governed.mean_tps = 19;  // already on its way down
  EXPECT_DOUBLE_EQ(*Ask().projected_by_measure, 1 / (0.05 + 4 * (0.05 / 3)))
      << "of three that run two are unsettled: each adds at least a third of the first one's gap";
  question_.governed.n_attached = question_.governed.n_running = question_.server.n_running = 10;
  question_.forecast.settled_running = 8;
  EXPECT_DOUBLE_EQ(*Ask().projected_by_measure, 1 / (0.05 + 4 * 0.012));
  EXPECT_TRUE(Ask().can_admit);
  question_.forecast.n_unsettled = 4;
  EXPECT_EQ(Reason(), "projected mean tps below floor");
}

TEST_F(JudgeTest, TheFloorIsAllowedToBeReachedExactly) {
  question_.governed.mean_tps = 40.0 / 3;  // · 3 / 4 = 10
  EXPECT_TRUE(Ask().can_admit);
  question_.governed.mean_tps = 13.33;
  EXPECT_EQ(Reason(), "projected mean tps below floor");
}

TEST_F(JudgeTest, AMeasuredGapIsBelievedBeforeTheModel) {
  question_.governed.n_attached = question_.governed.n_running = question_.server.n_running = 2;
  question_.forecast.gap_per_session = 0.025;
  EXPECT_NEAR(*Ask().projected_mean_tps, 10, 1e-9) << "one session is held in reserve";
  EXPECT_DOUBLE_EQ(*Ask().projected_by_model, 15);
  question_.forecast.gap_per_session = 0.026;
  EXPECT_FALSE(Ask().can_admit);
  question_.forecast.gap_per_session = 0.0;
  EXPECT_LT(*Ask().projected_mean_tps, 20) << "nobody costs nothing";
}

TEST_F(JudgeTest, AgentsThatPauseMayAllRunAtOnce) {
  question_.forecast = {.gap_per_session = 0.01};
  const double all_run = *Ask().projected_by_measure;
  EXPECT_DOUBLE_EQ(all_run, 1 / (0.05 + 2 * 0.01));
  question_.governed.n_attached = 4;
  EXPECT_LT(*Ask().projected_by_measure, all_run) << "one of four pauses";
  question_.governed.n_attached = 60;
  const double few_run = *Ask().projected_by_measure;
  EXPECT_GT(few_run, 1 / (0.05 + 60 * 0.01)) << "but hardly ever all of 60 of which three run";
}

TEST_F(JudgeTest, AMomentsPeakIsNotBelieved) {
  question_.forecast = {.settled_mean = 13, .settled_at = kNow};
  EXPECT_FALSE(Ask().can_admit) << "13 · 3 / 4";
  question_.forecast.settled_mean = 20;
  question_.governed.mean_tps = 13;
  EXPECT_FALSE(Ask().can_admit) << "nor that all is as it was";
}

TEST_F(JudgeTest, AgentsBetweenTurnsStillCount) {
  question_.governed = {.n_attached = 3};
  question_.server.n_decoding = 0;
  question_.forecast = {.settled_mean = 12, .settled_at = kNow - 29 * kSecond};
  EXPECT_TRUE(Ask().idle_estimate);
  EXPECT_EQ(Reason(), "projected mean tps below floor (idle estimate)");
  question_.forecast.settled_at = kNow - 30 * kSecond;
  EXPECT_FALSE(Ask().projected_mean_tps.has_value());
  EXPECT_TRUE(Ask().can_admit);
  question_.forecast.settled_at = kNow;
  question_.governed.n_attached = 0;
  policy_.guarantee_min_sessions = 0;
  EXPECT_TRUE(Ask().can_admit) << "nobody is attached";
}

TEST_F(JudgeTest, AnotherPoolsFloorHolds) {
  AdmissionPolicy other = policy_;
  Neighbour neighbour{.pool_id = 7, .policy = other, .governed = {.mean_tps = 14}};
  question_.neighbours = {&neighbour, 1};
  EXPECT_TRUE(Ask().can_admit);  // 14 · 3 / 4 = 10.5
  neighbour.governed.mean_tps = 13;
  EXPECT_EQ(Reason(), "would break floor of pool 7");
  neighbour.pool_id = kNoPool;
  EXPECT_EQ(Reason(), "would break floor of another pool");
  neighbour.governed.mean_tps = 0;
  EXPECT_TRUE(Ask().can_admit) << "nobody decodes there";
}

TEST_F(JudgeTest, OneMarginalSessionMustFit) {
  question_.governed.mean_private_cells = 4096;
  EXPECT_TRUE(Ask().can_admit);
  question_.governed.mean_private_cells = 4097;
  EXPECT_EQ(Reason(), "kv headroom exhausted");
  EXPECT_EQ(Ask().headroom(), 0);
}

TEST_F(JudgeTest, WithoutAPolicyOnlyTheContextCounts) {
  question_.policy = nullptr;
  question_.governed.mean_tps = 0.1;
  question_.governed.mean_private_cells = 9999;
  question_.forecast.n_unsettled = 1;
  EXPECT_TRUE(Ask().can_admit);
  question_.server.cells_available = 10;
  EXPECT_FALSE(Ask().can_admit);
}

TEST_F(JudgeTest, CompactionPressureRisesFromHalf) {
  ServerLoad load{.cells_total = 100, .cells_available = 50};
  EXPECT_DOUBLE_EQ(CompactionPressure(load), 0);
  load.cells_available = 25;
  const double half = CompactionPressure(load);
  EXPECT_DOUBLE_EQ(half, 0.5);
  load.largest_share = 1;
  EXPECT_GT(CompactionPressure(load), half);
  load.cells_available = 0;
  EXPECT_DOUBLE_EQ(CompactionPressure(load), 1);
}

}  // namespace
}  // namespace polykv
