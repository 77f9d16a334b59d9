// The engine on the fake backend under a manual clock, with clients; each step takes as long as the
// scenario's cost says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/agent.h"
#include "sim/scenario.h"

namespace polykv {

// A pool with a policy at one moment; what `/capacity` says of it.
struct Sample {
  TimeUs at = 0;
  double mean_tps = 0;     // 0: nobody decodes
  int32_t n_decoding = 0;  // of the whole server
  int32_t n_attached = 0;
  int32_t n_queued = 0;
  bool settling = false;
  std::optional<double> projected = {};
};

struct Series {
  std::string pool;
  double floor = 0;
  std::vector<Sample> samples;  // every 100 ms
};

// A moment at which more agents of a group could be sent.
struct Tick {
  TimeUs at = 0;
  std::string group;
  int32_t n_present = 0;  // agents of the group that were there
  double raw_mean = 0;    // tokens per second of those with a slot; 0: none
  int32_t n_sent = 0;     // now
};

struct Outcome {
  TimeUs ended = 0;  // simulated
  uint64_t n_steps = 0;
  uint64_t n_tokens = 0;  // computed
  int32_t n_parked = 0;   // times that a request was
  std::vector<Series> series;
  std::vector<Tick> ticks;
  struct Client {
    std::string group;
    TimeUs sent = 0;
    TimeUs done = 0;  // 0: not
    int32_t n_refused = 0;
    std::vector<Turn> turns;
  };
  std::vector<Client> clients;
};

// Times in the outcome count from 0.
Outcome Simulate(const Scenario& scenario);

}  // namespace polykv
