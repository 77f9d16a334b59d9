#include "api/model_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace polykv {
namespace {

// A gate before a model that takes note of what happens to it.
class ModelGateTest : public testing::Test {
 protected:
  static constexpr TimeUs kIdle = 1'000;

  bool IsLoaded() { return gate_.Look().loaded; }

  bool quiet_ = true;
  bool broken_ = false;
  std::atomic<bool> in_memory_{true};
  std::atomic<int> n_loads_{0};
  ModelGate gate_{{.idle_us = kIdle,
                   .is_quiet = [this] { return quiet_; },
                   .unload =
                       [this] {
                         EXPECT_TRUE(in_memory_);
                         in_memory_ = false;
                       },
                   .load = [this]() -> std::optional<Problem> {
                     EXPECT_FALSE(in_memory_);
                     ++n_loads_;
                     if (broken_) return Problem{.message = "broken"};
                     in_memory_ = true;
                     return std::nullopt;
                   }}};
};

TEST_F(ModelGateTest, UnloadsAfterTheIdleTimeAndLoadsForTheNextUse) {
  EXPECT_TRUE(gate_.Enter().ok());
  gate_.Poll(5'000);
  gate_.Poll(5'999);
  EXPECT_TRUE(IsLoaded());
  gate_.Poll(6'000);
  EXPECT_FALSE(IsLoaded());
  EXPECT_FALSE(in_memory_);
  EXPECT_TRUE(gate_.Enter().ok());
  EXPECT_TRUE(in_memory_);
  gate_.Poll(6'001);
  gate_.Poll(7'000);
  EXPECT_TRUE(IsLoaded()) << "the idle time starts anew";
  gate_.Poll(7'001);
  EXPECT_FALSE(IsLoaded());
}

TEST_F(ModelGateTest, AHoldKeepsTheModel) {
  {
    const auto hold = gate_.Enter();
    gate_.Poll(5'000);
    gate_.Poll(50'000);
    EXPECT_TRUE(IsLoaded());
  }
  gate_.Poll(50'001);
  EXPECT_FALSE(IsLoaded());
}

TEST_F(ModelGateTest, ALookKeepsTheModelButIsNoUse) {
  gate_.Poll(5'000);
  {
    const ModelGate::Glance glance = gate_.Look();
    EXPECT_TRUE(glance.loaded);
    gate_.Poll(6'000);
    EXPECT_TRUE(in_memory_);
  }
  gate_.Poll(6'001);
  EXPECT_FALSE(in_memory_);
  EXPECT_FALSE(IsLoaded());
  EXPECT_EQ(n_loads_, 0);
}

TEST_F(ModelGateTest, WhatGoesOnBehindItIsUse) {
  quiet_ = false;
  gate_.Poll(5'000);
  gate_.Poll(10'000);
  EXPECT_TRUE(IsLoaded());
  quiet_ = true;
  gate_.Poll(10'999);
  EXPECT_TRUE(IsLoaded());
  gate_.Poll(11'000);
  EXPECT_FALSE(IsLoaded());
}

TEST_F(ModelGateTest, AFailedLoadIsTriedAgain) {
  gate_.Poll(5'000);
  gate_.Poll(6'000);
  broken_ = true;
  const auto failed = gate_.Enter();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.problem().message, "broken");
  EXPECT_FALSE(IsLoaded());
  broken_ = false;
  EXPECT_TRUE(gate_.Enter().ok());
  EXPECT_EQ(n_loads_, 2);
}

TEST_F(ModelGateTest, ClosedItStaysAsItIs) {
  EXPECT_TRUE(gate_.Close());
  EXPECT_TRUE(gate_.Enter().ok());
  gate_.Poll(5'000);
  gate_.Poll(6'000);
  const auto refused = gate_.Enter();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.problem().status, 503);
}

TEST_F(ModelGateTest, NobodyEverEntersWithoutTheModel) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 4; ++i) {
    users.emplace_back([&] {
      for (int round = 0; round < 2'000; ++round) {
        const auto hold = gate_.Enter();
        EXPECT_TRUE(hold.ok() && in_memory_);
        const ModelGate::Glance glance = gate_.Look();
        EXPECT_TRUE(glance.loaded);
      }
    });
  }
  std::thread poller([&] {
    for (TimeUs now = 0; !stop; now += kIdle) gate_.Poll(now);
  });
  for (std::thread& user : users) user.join();
  stop = true;
  poller.join();
}

}  // namespace
}  // namespace polykv
