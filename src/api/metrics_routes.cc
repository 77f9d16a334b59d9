// GET /metrics: llama-server's series and ours, in Prometheus' text format.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "api/problem.h"
#include "api/protocol/server_metrics.h"
#include "api/routes.h"
#include "meter/histogram.h"
#include "metrics/prometheus_text.h"

namespace polykv {
namespace {

std::string Named(const char* name) { return std::string("opencoti_polykv:") + name; }

using Labels = std::vector<std::pair<std::string, std::string>>;

// The pool's name, or its number if it has none or another pool is shown with the same.
Labels LabelsOf(const EngineSnapshot& snapshot, const PoolView& pool) {
  const auto n_same =
      std::count_if(snapshot.pools.begin(), snapshot.pools.end(),
                    [&pool](const PoolView& other) { return other.name == pool.name; });
  const bool by_name = !pool.name.empty() && n_same == 1;
  return {{"pool", by_name ? pool.name : std::to_string(pool.pool_id)}};
}

// One sample per pool.
template <typename Value>
std::vector<MetricSample> PerPool(const EngineSnapshot& snapshot, Value value) {
  std::vector<MetricSample> samples;
  for (const PoolView& pool : snapshot.pools) {
    samples.push_back(
        {.labels = LabelsOf(snapshot, pool), .value = static_cast<double>(value(pool))});
  }
  return samples;
}

// What the pool's sessions experience, together.
double PoolTps(const EngineSnapshot& snapshot, const PoolView& pool, TimeUs now) {
  double tps = 0;
  for (const SessionView& session : snapshot.sessions) {
    if (session.pool_id == pool.pool_id) tps += TpsAt(session, now);
  }
  return tps;
}

std::vector<MetricSample> DecisionSamples(const EngineSnapshot& snapshot) {
  std::vector<MetricSample> samples;
  for (const PoolView& pool : snapshot.pools) {
    for (const auto& [decision, count] : pool.decisions) {
      Labels labels = LabelsOf(snapshot, pool);
      labels.emplace_back("decision", decision);
      samples.push_back({.labels = std::move(labels), .value = static_cast<double>(count)});
    }
  }
  return samples;
}

HistogramSample SampleOf(Labels labels, const Histogram& histogram) {
  HistogramSample sample{.labels = std::move(labels),
                         .sum = static_cast<double>(histogram.sum_us()) / 1e6};
  const auto counts = histogram.UpTo();
  for (size_t i = 0; i < counts.size(); ++i) {
    const double bound = i < Histogram::kBoundsUs.size()
                             ? static_cast<double>(Histogram::kBoundsUs[i]) / 1e6
                             : std::numeric_limits<double>::infinity();
    sample.up_to.emplace_back(bound, static_cast<double>(counts[i]));
  }
  return sample;
}

// One per pool, and one without a label for the requests of none.
std::vector<HistogramSample> Histograms(const EngineSnapshot& snapshot,
                                        Histogram LatencyMeters::* histogram) {
  std::vector<HistogramSample> samples = {SampleOf({}, snapshot.counters.latency.*histogram)};
  for (const PoolView& pool : snapshot.pools) {
    samples.push_back(SampleOf(LabelsOf(snapshot, pool), pool.latency.*histogram));
  }
  return samples;
}

std::vector<MetricSample> MissSamples(const Counters::MissReasons& miss) {
  const std::pair<const char*, uint64_t> reasons[] = {
      {"no_pool", miss.no_pool},     {"diverged", miss.diverged},   {"evicted", miss.evicted},
      {"window", miss.window},       {"recurrent", miss.recurrent}, {"adapter", miss.adapter},
      {"self_test", miss.self_test},
  };
  std::vector<MetricSample> samples;
  for (const auto& [reason, count] : reasons) {
    samples.push_back({.labels = {{"reason", reason}}, .value = static_cast<double>(count)});
  }
  return samples;
}

void WriteGauges(const EngineSnapshot& snapshot, TimeUs now, PrometheusText* text) {
  const double total = std::max(1, snapshot.kv_cells_total);
  text->Gauge(Named("kv_cache_usage_perc"), "Used share of the KV cells, 0 to 1",
              snapshot.kv_cells_used / total);
  text->Gauge(Named("host_tier_bytes"), "Bytes of host memory that saved sequences take",
              static_cast<double>(snapshot.host_bytes));
  text->Gauge(Named("host_tier_entries"), "Saved sequences in host memory", snapshot.host_entries);
  text->Gauge(Named("parked_bytes"), "Bytes of host memory that parked requests take",
              static_cast<double>(snapshot.parked_bytes));
  text->Gauge(Named("num_requests_parked"), "Running requests that wait for cells",
              snapshot.n_parked);
  text->Gauge(Named("num_requests_running"), "Requests that hold a slot", snapshot.n_running);
  text->Gauge(Named("num_requests_waiting"), "Requests that wait", snapshot.n_waiting);
  text->Gauge(Named("pool_kv_bytes"), "Bytes of KV that the pool owns itself",
              PerPool(snapshot, [&snapshot](const PoolView& pool) {
                return pool.own_cells * snapshot.bytes_per_cell;
              }));
  text->Gauge(
      Named("gen_throughput_tps"), "Tokens per second of the pool's sessions together",
      PerPool(snapshot, [&](const PoolView& pool) { return PoolTps(snapshot, pool, now); }));
  text->Gauge(Named("pool_sessions"), "Sessions of the pool",
              PerPool(snapshot, [](const PoolView& pool) { return pool.sessions.size(); }));
}

void WriteCounters(const EngineSnapshot& snapshot, PrometheusText* text) {
  const Counters& counters = snapshot.counters;
  text->Counter(Named("prefix_cache_hits_total"), "Attaches that shared at least one token",
                PerPool(snapshot, [](const PoolView& pool) { return pool.hits; }));
  text->Counter(Named("queries_total"), "Attaches",
                PerPool(snapshot, [](const PoolView& pool) { return pool.queries; }));
  text->Counter(Named("admission_decisions_total"), "What the admission gate decided",
                DecisionSamples(snapshot));
  text->Counter(Named("prefix_cache_hit_tokens_total"), "Prompt tokens taken from pools",
                static_cast<double>(counters.pool_hit_tokens));
  text->Counter(Named("prefix_cache_query_tokens_total"), "Prompt tokens of requests with a pool",
                static_cast<double>(counters.pool_query_tokens));
  text->Counter(Named("prefill_steps_total"), "Steps of the model that computed prompt tokens",
                static_cast<double>(counters.n_prefill_steps));
  text->Counter(Named("pool_prefilled_tokens_total"), "Tokens computed to fill pools",
                static_cast<double>(counters.pool_prefilled_tokens));
  text->Counter(Named("prefix_miss_total"), "Attaches that shared less than the whole pool",
                MissSamples(counters.miss));
  text->Counter(Named("kv_exhausted_total"), "Requests that ended early for want of KV cells",
                static_cast<double>(counters.kv_exhausted));
  text->Counter(Named("parked_total"), "Times a running request had to wait for cells",
                static_cast<double>(counters.parked));
  text->Counter(Named("resumed_total"), "Times such a request went on",
                static_cast<double>(counters.resumed));
  text->Counter(Named("sessions_saved_total"), "Times an idle session went to host memory",
                static_cast<double>(counters.sessions_saved));
  text->Counter(Named("sessions_restored_total"), "Times such a session came back by a copy",
                static_cast<double>(counters.sessions_restored));
  text->Counter(Named("pools_saved_total"), "Times a pool went to host memory",
                static_cast<double>(counters.pools_saved));
  text->Counter(Named("pools_restored_total"), "Times a pool came back by a copy",
                static_cast<double>(counters.pools_restored));
  text->Counter(Named("cancelled_total"), "Requests whose client went away",
                static_cast<double>(counters.cancelled));
}

void WriteAttention(const AttentionCounts& counts, PrometheusText* text) {
  text->Counter(Named("attention_operations_total"), "Attention operations, by whose kernel",
                {{.labels = {{"kernel", "polykv"}}, .value = static_cast<double>(counts.polykv)},
                 {.labels = {{"kernel", "ggml"}}, .value = static_cast<double>(counts.ggml)}});
}

void WriteHistograms(const EngineSnapshot& snapshot, PrometheusText* text) {
  text->Histogram(Named("ttft_seconds"), "From the request's arrival to its first token",
                  Histograms(snapshot, &LatencyMeters::first_token));
  text->Histogram(Named("inter_token_seconds"), "Between two tokens of a stream",
                  Histograms(snapshot, &LatencyMeters::inter_token));
}

HttpResponse Metrics(const Services& services, const HttpRequest& request,
                     ServerMetrics* server_metrics) {
  if (const auto refused = CheckAdmin(request)) return ProblemResponse(*refused);
  const ModelGate::Glance glance = services.gate->Look();
  const bool enabled =
      glance.loaded ? services.model->endpoint_metrics() : services.asleep.endpoint_metrics;
  if (!enabled) {
    return ProblemResponse(
        {.status = 501,
         .type = "not_supported_error",
         .message = "This server does not support metrics endpoint. Start it with `--metrics`"});
  }
  const auto snapshot = glance.loaded ? services.engine->Snapshot() : services.asleep.snapshot;
  PrometheusText text;
  WriteGauges(*snapshot, services.clock->NowUs(), &text);
  WriteCounters(*snapshot, &text);
  WriteAttention(services.attention_counts(), &text);
  WriteHistograms(*snapshot, &text);
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4";
  response.headers["Process-Start-Time-Unix"] = std::to_string(services.started_unix_s);
  response.body = server_metrics->Text(*snapshot) + text.text();
  return response;
}

}  // namespace

void AddMetricsRoutes(HttpServer* server, const Services* services) {
  server->Get("/metrics",
              [services, metrics = std::make_shared<ServerMetrics>()](const HttpRequest& request) {
                return Metrics(*services, request, metrics.get());
              });
}

}  // namespace polykv
