// GET /metrics: llama-server's series and ours, in Prometheus' text format.
#include <algorithm>
#include <memory>

#include "api/problem.h"
#include "api/protocol/server_metrics.h"
#include "api/routes.h"
#include "metrics/prometheus_text.h"

namespace polykv {
namespace {

std::string Named(const char* name) { return std::string("opencoti_polykv:") + name; }

// One sample per pool; the name is the label where there is one.
template <typename Value>
std::vector<MetricSample> PerPool(const EngineSnapshot& snapshot, Value value) {
  std::vector<MetricSample> samples;
  for (const PoolView& pool : snapshot.pools) {
    const std::string label = pool.name.empty() ? std::to_string(pool.pool_id) : pool.name;
    samples.push_back({.labels = {{"pool", label}}, .value = static_cast<double>(value(pool))});
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

void WriteGauges(const EngineSnapshot& snapshot, PrometheusText* text) {
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
  text->Gauge(Named("pool_sessions"), "Sessions of the pool",
              PerPool(snapshot, [](const PoolView& pool) { return pool.sessions.size(); }));
}

void WriteCounters(const EngineSnapshot& snapshot, PrometheusText* text) {
  const Counters& counters = snapshot.counters;
  text->Counter(Named("prefix_cache_hits_total"), "Attaches that shared at least one token",
                PerPool(snapshot, [](const PoolView& pool) { return pool.hits; }));
  text->Counter(Named("queries_total"), "Attaches",
                PerPool(snapshot, [](const PoolView& pool) { return pool.queries; }));
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
  WriteGauges(*snapshot, &text);
  WriteCounters(*snapshot, &text);
  WriteAttention(services.attention_counts(), &text);
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
