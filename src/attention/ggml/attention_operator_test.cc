#include "attention/ggml/attention_operator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attention/ggml/trial_graph.h"

namespace polykv {
namespace {

class AttentionOperatorTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(attention_, nullptr); }

  std::vector<float> Compute(const TrialShape& shape, int64_t n_tokens, bool ours) {
    attention_->on = ours;
    TrialGraph graph(shape, n_tokens, 192, 2);
    graph.Compute();
    attention_->on = false;
    return graph.Output();
  }

  AttentionSwitch* const attention_ = InstallAttention();
};

TEST_F(AttentionOperatorTest, EveryCacheTypeIsNearGgmls) {
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                               GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL}) {
    for (const int64_t n_tokens : {1, 9, 70}) {
      const TrialShape shape{
          .key_type = type, .value_type = type, .n_heads = 6, .n_kv_heads = 2, .scale = 0.125F};
      const std::vector<float> theirs = Compute(shape, n_tokens, false);
      const int64_t n_before = attention_->n_ours;
      const std::vector<float> ours = Compute(shape, n_tokens, true);
      EXPECT_EQ(attention_->n_ours, n_before + 1);
      for (size_t i = 0; i < ours.size(); ++i) {
        // ggml rounds the query to the keys' type and adds up half-precision values.
        ASSERT_NEAR(ours[i], theirs[i], 0.02) << ggml_type_name(type) << ", " << n_tokens;
      }
    }
  }
}

TEST_F(AttentionOperatorTest, OtherShapesAreGgmlsAndCounted) {
  const TrialShape shape{.n_heads = 2, .n_kv_heads = 1, .key_size = 576, .value_size = 512};
  const int64_t n_ours = attention_->n_ours;
  const int64_t n_ggml = attention_->n_ggml;
  EXPECT_EQ(Compute(shape, 2, true), Compute(shape, 2, false));
  EXPECT_EQ(attention_->n_ours, n_ours);
  EXPECT_EQ(attention_->n_ggml, n_ggml + 2);
}

TEST_F(AttentionOperatorTest, ATrialComparesBoth) {
  Compute({.n_heads = 6, .n_kv_heads = 2, .scale = 0.125F}, 1, false);
  const int64_t n_ours = attention_->n_ours;
  const std::optional<AttentionTrial> trial = TryAttention(2, SteadyClock());
  ASSERT_TRUE(trial.has_value());
  EXPECT_LT(trial->difference, 0.02);
  EXPECT_EQ(attention_->n_ours, n_ours);
  EXPECT_FALSE(attention_->on);
}

}  // namespace
}  // namespace polykv
