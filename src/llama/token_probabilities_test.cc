#include "llama/token_probabilities.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace polykv {
namespace {

TEST(TokenProbabilitiesTest, IsASoftmaxWithItsTopInOrder) {
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F),
                                     std::log(1.0F)};
  const TokenProbabilities probabilities(logits, 2);
  ASSERT_EQ(probabilities.top().size(), 2U);
  EXPECT_EQ(probabilities.top()[0].first, 1);
  EXPECT_FLOAT_EQ(probabilities.top()[0].second, 0.5F);
  EXPECT_EQ(probabilities.top()[1].first, 2);
  EXPECT_FLOAT_EQ(probabilities.top()[1].second, 0.25F);
  EXPECT_FLOAT_EQ(probabilities.Of(0), 0.125F);
  EXPECT_FLOAT_EQ(probabilities.Of(3), 0.125F);
}

TEST(TokenProbabilitiesTest, HugeLogitsDoNotOverflow) {
  const std::vector<float> logits = {1e30F, 1e30F, -1e30F};
  const TokenProbabilities probabilities(logits, 1);
  EXPECT_FLOAT_EQ(probabilities.Of(0), 0.5F);
  EXPECT_FLOAT_EQ(probabilities.Of(2), 0.0F);
}

TEST(TokenProbabilitiesTest, TheTopIsNeverLongerThanTheVocabulary) {
  const std::vector<float> logits = {0.0F, 1.0F};
  EXPECT_EQ(TokenProbabilities(logits, 10).top().size(), 2U);
  EXPECT_TRUE(TokenProbabilities(logits, 0).top().empty());
  EXPECT_FLOAT_EQ(TokenProbabilities(logits, 0).Of(1), TokenProbabilities(logits, 2).Of(1));
}

}  // namespace
}  // namespace polykv
