#include "sim/model_cost.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr ModelCost::Point kOne{.rows = 1, .us = 100};
constexpr ModelCost::Point kThree{.rows = 3, .us = 140};
constexpr ModelCost::Point kFour{.rows = 4, .us = 200};

TEST(ModelCostTest, GoesAlongStraightLines) {
  const ModelCost cost{.decode = {kOne, kThree, kFour}};
  EXPECT_EQ(cost.StepUs({.n_rows = 0}), 80);
  EXPECT_EQ(cost.StepUs({.n_rows = 1}), 100);
  EXPECT_EQ(cost.StepUs({.n_rows = 2}), 120);
  EXPECT_EQ(cost.StepUs({.n_rows = 4}), 200);
  EXPECT_EQ(cost.StepUs({.n_rows = 6}), 320);
}

TEST(ModelCostTest, AddsWhatPromptsAndCellsCost) {
  const ModelCost cost{.decode = {kOne},
                       .prompt_us = 1'000,
                       .prompt_token_us = 10,
                       .cell_us = 2,
                       .prompt_cell_us = 1};
  const StepBatch batch = {{.token = 1, .pos = 0, .seq = 0, .output = false},
                           {.token = 1, .pos = 1, .seq = 0, .output = false},
                           {.token = 1, .pos = 9, .seq = 1, .output = true}};
  EXPECT_EQ(cost.StepUs(ContentOf(batch)), 100 + 1'000 + 2 * 10 + 10 * 2 + 3);
}

}  // namespace
}  // namespace polykv
