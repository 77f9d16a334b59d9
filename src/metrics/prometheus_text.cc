#include "metrics/prometheus_text.h"

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace polykv {
namespace {

std::string FormatValue(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  POLYKV_CHECK(error == std::errc());
  return {buffer, end};
}

void AppendEscaped(std::string_view value, std::string* out) {
  for (const char c : value) {
    switch (c) {
      case '\\':
        *out += "\\\\";
        break;
      case '"':
        *out += "\\\"";
        break;
      case '\n':
        *out += "\\n";
        break;
      default:
        *out += c;
    }
  }
}

void AppendLabels(const MetricSample& sample, std::string* out) {
  if (sample.labels.empty()) return;
  char separator = '{';
  for (const auto& [name, value] : sample.labels) {
    *out += separator;
    *out += name;
    *out += "=\"";
    AppendEscaped(value, out);
    *out += '"';
    separator = ',';
  }
  *out += '}';
}

}  // namespace

void PrometheusText::Counter(std::string_view name, std::string_view help,
                             const std::vector<MetricSample>& samples) {
  POLYKV_CHECK(name.ends_with("_total"));
  Family("counter", name, help, samples);
}

void PrometheusText::Gauge(std::string_view name, std::string_view help,
                           const std::vector<MetricSample>& samples) {
  Family("gauge", name, help, samples);
}

void PrometheusText::Counter(std::string_view name, std::string_view help, double value) {
  Counter(name, help, std::vector<MetricSample>{{.labels = {}, .value = value}});
}

void PrometheusText::Gauge(std::string_view name, std::string_view help, double value) {
  Gauge(name, help, std::vector<MetricSample>{{.labels = {}, .value = value}});
}

void PrometheusText::Histogram(std::string_view name, std::string_view help,
                               const std::vector<HistogramSample>& samples) {
  const std::string text(name);
  Head("histogram", name, help);
  for (const HistogramSample& sample : samples) {
    for (const auto& [bound, count] : sample.up_to) {
      MetricSample bucket{.labels = sample.labels, .value = count};
      bucket.labels.emplace_back("le", FormatValue(bound));
      Sample(text + "_bucket", bucket);
    }
    Sample(text + "_sum", {.labels = sample.labels, .value = sample.sum});
    Sample(text + "_count", {.labels = sample.labels, .value = sample.up_to.back().second});
  }
}

void PrometheusText::Head(std::string_view type, std::string_view name, std::string_view help) {
  for (const std::string_view part :
       {std::string_view("# HELP "), name, std::string_view(" "), help,
        std::string_view("\n# TYPE "), name, std::string_view(" "), type, std::string_view("\n")}) {
    text_ += part;
  }
}

void PrometheusText::Sample(std::string_view name, const MetricSample& sample) {
  text_ += name;
  AppendLabels(sample, &text_);
  text_ += ' ';
  text_ += FormatValue(sample.value);
  text_ += '\n';
}

void PrometheusText::Family(std::string_view type, std::string_view name, std::string_view help,
                            const std::vector<MetricSample>& samples) {
  Head(type, name, help);
  for (const MetricSample& sample : samples) Sample(name, sample);
}

}  // namespace polykv
