#include "metrics/prometheus_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace polykv {
namespace {

TEST(PrometheusTextTest, WritesHelpTypeAndValue) {
  PrometheusText text;
  text.Gauge("kv_cache_usage_perc", "Used cells", 0.25);
  EXPECT_EQ(text.text(),
            "# HELP kv_cache_usage_perc Used cells\n"
            "# TYPE kv_cache_usage_perc gauge\n"
            "kv_cache_usage_perc 0.25\n");
}

TEST(PrometheusTextTest, EscapesLabelValues) {
  PrometheusText text;
  text.Counter("hits_total", "Hits",
               {{.labels = {{"pool", "a\"b\\c\nd"}, {"kind", "x"}}, .value = 3}});
  EXPECT_EQ(text.text(),
            "# HELP hits_total Hits\n"
            "# TYPE hits_total counter\n"
            "hits_total{pool=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 3\n");
}

TEST(PrometheusTextTest, LargeCountsStayExact) {
  PrometheusText text;
  text.Counter("tokens_total", "Tokens", 123456789012.0);
  EXPECT_NE(text.text().find("tokens_total 123456789012\n"), std::string::npos);
}

TEST(PrometheusTextTest, WritesValuesThatAreNoNumbers) {
  PrometheusText text;
  text.Gauge("g", "G", std::numeric_limits<double>::infinity());
  EXPECT_NE(text.text().find("g +Inf\n"), std::string::npos);
}

TEST(PrometheusTextTest, FamilyWithoutSamplesHasOnlyItsHead) {
  PrometheusText text;
  text.Gauge("g", "G", std::vector<MetricSample>{});
  EXPECT_EQ(text.text(), "# HELP g G\n# TYPE g gauge\n");
}

TEST(PrometheusTextTest, WritesHistograms) {
  PrometheusText text;
  const double infinity = std::numeric_limits<double>::infinity();
  text.Histogram("wait_seconds", "Wait",
                 {{.labels = {{"pool", "a"}}, .up_to = {{0.5, 2}, {infinity, 3}}, .sum = 4.25}});
  EXPECT_EQ(text.text(),
            "# HELP wait_seconds Wait\n"
            "# TYPE wait_seconds histogram\n"
            "wait_seconds_bucket{pool=\"a\",le=\"0.5\"} 2\n"
            "wait_seconds_bucket{pool=\"a\",le=\"+Inf\"} 3\n"
            "wait_seconds_sum{pool=\"a\"} 4.25\n"
            "wait_seconds_count{pool=\"a\"} 3\n");
}

}  // namespace
}  // namespace polykv
