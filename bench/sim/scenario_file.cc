#include "sim/scenario_file.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string_view>

namespace polykv {
namespace {

TimeUs Seconds(const Json& json) { return std::llround(json.get<double>() * 1e6); }
double Seconds(TimeUs us) { return static_cast<double>(us) / 1e6; }

// Reads the fields of one object.
class Fields {
 public:
  Fields(const Json& json, std::initializer_list<std::string_view> names) : json_(json) {
    for (const auto& [name, value] : json.items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        throw std::invalid_argument("unknown field: " + name);
      }
    }
  }
  template <typename T>
  void Read(const char* name, T* value) const {
    if (json_.contains(name)) *value = json_.at(name).get<T>();
  }
  void ReadSeconds(const char* name, TimeUs* value) const {
    if (json_.contains(name)) *value = Seconds(json_.at(name));
  }
  // A number or [low, high].
  void ReadRange(const char* name, Range* range, double scale = 1) const {
    if (!json_.contains(name)) return;
    const Json& json = json_.at(name);
    const double low = (json.is_array() ? json.at(0) : json).get<double>();
    const double high = (json.is_array() ? json.at(1) : json).get<double>();
    *range = {std::llround(low * scale), std::llround(high * scale)};
    if (low < 0 || high < low) throw std::invalid_argument(std::string("no range: ") + name);
  }
  // The place of the word in the list.
  template <typename T>
  void ReadWord(const char* name, std::initializer_list<std::string_view> words, T* value) const {
    if (!json_.contains(name)) return;
    const auto word = json_.at(name).get<std::string>();
    const auto found = std::find(words.begin(), words.end(), word);
    if (found == words.end()) throw std::invalid_argument("unknown word: " + word);
    *value = static_cast<T>(found - words.begin());
  }

 private:
  const Json& json_;
};

AdmissionPolicy ReadPolicy(const Json& json) {
  AdmissionPolicy policy{.mode = AdmissionPolicy::Mode::kEnforced};
  const Fields fields(json,
                      {"target_tps_per_session", "mode", "on_saturation", "guarantee_min_sessions",
                       "settle_tokens", "settle_max_ms", "max_queue", "queue_timeout_ms"});
  fields.Read("target_tps_per_session", &policy.target_tps_per_session);
  fields.ReadWord("mode", {"advisory", "enforced"}, &policy.mode);
  fields.ReadWord("on_saturation", {"reject", "warn", "queue"}, &policy.on_saturation);
  fields.Read("guarantee_min_sessions", &policy.guarantee_min_sessions);
  fields.Read("settle_tokens", &policy.settle_tokens);
  fields.Read("settle_max_ms", &policy.settle_max_ms);
  if (json.contains("max_queue")) policy.max_queue = json.at("max_queue").get<int32_t>();
  fields.Read("queue_timeout_ms", &policy.queue_timeout_ms);
  return policy;
}

ServerPlan ReadServer(const Json& json) {
  ServerPlan server;
  const Fields fields(json, {"slots", "cells", "pools", "sessions", "waiting", "prefill_chunk"});
  fields.Read("slots", &server.n_slots);
  fields.Read("cells", &server.n_cells);
  fields.Read("pools", &server.max_pools);
  fields.Read("sessions", &server.max_sessions);
  fields.Read("waiting", &server.max_waiting);
  fields.Read("prefill_chunk", &server.prefill_chunk);
  return server;
}

PoolPlan ReadPool(const Json& json) {
  PoolPlan pool;
  const Fields fields(json, {"name", "parent", "tokens", "at_s", "policy", "floor"});
  fields.Read("name", &pool.name);
  fields.Read("parent", &pool.parent);
  fields.Read("tokens", &pool.n_tokens);
  fields.ReadSeconds("at_s", &pool.at);
  if (json.contains("policy")) pool.policy = ReadPolicy(json.at("policy"));
  if (json.contains("floor")) pool.floor = json.at("floor").get<double>();
  return pool;
}

GroupPlan ReadGroup(const Json& json) {
  GroupPlan group;
  const Fields fields(json, {"name", "pool", "agents", "first", "at_once", "start_s", "every_s",
                             "spawn", "turns", "prompt", "answer", "gap_s"});
  fields.Read("name", &group.name);
  fields.Read("pool", &group.pool);
  fields.Read("agents", &group.n_agents);
  fields.Read("first", &group.n_first);
  fields.Read("at_once", &group.n_at_once);
  fields.ReadSeconds("start_s", &group.start);
  fields.ReadSeconds("every_s", &group.every);
  fields.ReadWord("spawn", {"timed", "raw_mean", "capacity"}, &group.spawn);
  fields.Read("turns", &group.n_turns);
  fields.ReadRange("prompt", &group.prompt);
  fields.ReadRange("answer", &group.answer);
  fields.ReadRange("gap_s", &group.gap_ms, 1'000);
  return group;
}

Change ReadChange(const Json& json) {
  Change change;
  const Fields fields(json, {"at_s", "group", "answer"});
  fields.ReadSeconds("at_s", &change.at);
  fields.Read("group", &change.group);
  fields.ReadRange("answer", &change.answer);
  return change;
}

Json SeriesJson(const Series& series) {
  Json rows = Json::array();
  for (const Sample& sample : series.samples) {
    rows.push_back({Seconds(sample.at), sample.mean_tps, sample.n_decoding, sample.n_attached,
                    sample.n_queued, sample.settling,
                    sample.projected ? Json(*sample.projected) : Json(nullptr)});
  }
  return {{"pool", series.pool},
          {"floor", series.floor},
          {"columns", {"t", "mean_tps", "decoding", "attached", "queued", "settling", "projected"}},
          {"rows", rows}};
}

Json ClientJson(const Outcome::Client& client) {
  Json turns = Json::array();
  for (const Turn& turn : client.turns) {
    turns.push_back({Seconds(turn.asked), Seconds(turn.first), Seconds(turn.last), turn.n_tokens});
  }
  return {{"group", client.group},
          {"sent", Seconds(client.sent)},
          {"done", client.done > 0 ? Json(Seconds(client.done)) : Json(nullptr)},
          {"refused", client.n_refused},
          {"turns", turns}};
}

}  // namespace

ModelCost ReadModelCost(const Json& json) {
  ModelCost cost;
  const Fields fields(
      json, {"about", "decode_us", "prompt_us", "prompt_token_us", "cell_us", "prompt_cell_us"});
  for (const Json& point : json.at("decode_us")) {
    cost.decode.push_back({point.at(0).get<double>(), point.at(1).get<double>()});
  }
  fields.Read("prompt_us", &cost.prompt_us);
  fields.Read("prompt_token_us", &cost.prompt_token_us);
  fields.Read("cell_us", &cost.cell_us);
  fields.Read("prompt_cell_us", &cost.prompt_cell_us);
  return cost;
}

Scenario ReadScenario(const Json& json) {
  Scenario scenario;
  const Fields fields(
      json, {"name", "about", "seconds", "seed", "server", "cost", "pools", "groups", "changes"});
  fields.Read("name", &scenario.name);
  fields.Read("about", &scenario.about);
  fields.ReadSeconds("seconds", &scenario.duration);
  fields.Read("seed", &scenario.seed);
  if (json.contains("server")) scenario.server = ReadServer(json.at("server"));
  scenario.cost = ReadModelCost(json.at("cost"));
  for (const Json& pool : json.value("pools", Json::array())) {
    scenario.pools.push_back(ReadPool(pool));
  }
  for (const Json& group : json.at("groups")) scenario.groups.push_back(ReadGroup(group));
  for (const Json& change : json.value("changes", Json::array())) {
    scenario.changes.push_back(ReadChange(change));
  }
  return scenario;
}

Scenario ReadScenarioFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("cannot read " + path);
  return ReadScenario(Json::parse(file));
}

Json OutcomeJson(const Scenario& scenario, const Outcome& outcome) {
  Json json = {{"scenario", scenario.name},  {"seconds", Seconds(outcome.ended)},
               {"steps", outcome.n_steps},   {"tokens", outcome.n_tokens},
               {"parked", outcome.n_parked}, {"series", Json::array()},
               {"ticks", Json::array()},     {"clients", Json::array()}};
  for (const Series& series : outcome.series) json["series"].push_back(SeriesJson(series));
  for (const Tick& tick : outcome.ticks) {
    json["ticks"].push_back(
        {Seconds(tick.at), tick.group, tick.n_present, tick.raw_mean, tick.n_sent});
  }
  for (const Outcome::Client& client : outcome.clients) {
    json["clients"].push_back(ClientJson(client));
  }
  return json;
}

}  // namespace polykv
