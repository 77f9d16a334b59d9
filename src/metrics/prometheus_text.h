// Writes metrics in Prometheus' text format 0.0.4. Knows no engine and keeps no value.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace polykv {

struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;  // names are ours, values are untrusted
  double value = 0;
};

struct HistogramSample {
  std::vector<std::pair<std::string, std::string>> labels;
  // How many were at most so much, by ascending bounds; the last bound is infinity, and its number
  // that of all.
  std::vector<std::pair<double, double>> up_to;
  double sum = 0;
};

// Not thread-safe. One call per metric family; names and help texts are ours and written as they
// are.
class PrometheusText {
 public:
  // REQUIRES: `name` ends in _total.
  void Counter(std::string_view name, std::string_view help,
               const std::vector<MetricSample>& samples);
  void Gauge(std::string_view name, std::string_view help,
             const std::vector<MetricSample>& samples);

  // REQUIRES: the samples' `up_to` are not empty.
  void Histogram(std::string_view name, std::string_view help,
                 const std::vector<HistogramSample>& samples);

  void Counter(std::string_view name, std::string_view help, double value);
  void Gauge(std::string_view name, std::string_view help, double value);

  const std::string& text() const { return text_; }

 private:
  void Head(std::string_view type, std::string_view name, std::string_view help);
  void Sample(std::string_view name, const MetricSample& sample);
  void Family(std::string_view type, std::string_view name, std::string_view help,
              const std::vector<MetricSample>& samples);

  std::string text_;
};

}  // namespace polykv
