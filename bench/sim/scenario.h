// A traffic to simulate: a server, its pools and groups of agents that come and work on them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "admission/policy.h"
#include "base/result.h"
#include "sim/model_cost.h"

namespace polykv {

struct Range {  // both ends included
  int64_t low = 0;
  int64_t high = 0;
};

struct ServerPlan {
  int32_t n_slots = 16;
  int32_t n_cells = 65'536;
  int32_t max_pools = 16;
  int32_t max_sessions = 64;
  int32_t max_waiting = 4'096;
  int32_t prefill_chunk = 256;
};

struct PoolPlan {
  std::string name;
  std::string parent;    // empty: a root
  int32_t n_tokens = 0;  // of its own
  TimeUs at = 0;
  std::optional<AdmissionPolicy> policy;
  std::optional<double> floor;  // that it is measured against; none: the policy's target
};

// When the agents of a group are sent.
enum class Spawn {
  kTimed,     // one every `every`; the server's gate may hold them
  kRawMean,   // at each tick one, if the raw mean rate is at the floor or over it
  kCapacity,  // at each tick one, if the pool's capacity says so
};

struct GroupPlan {
  std::string name;
  std::string pool;  // empty: plain requests
  int32_t n_agents = 1;
  int32_t n_first = 1;                                      // that are sent at once
  int32_t n_at_once = std::numeric_limits<int32_t>::max();  // none is sent beside so many
  TimeUs start = 0;
  TimeUs every = 0;  // between two agents, or between two ticks
  Spawn spawn = Spawn::kTimed;
  int32_t n_turns = 1;      // of each agent; 0: as long as the simulation lasts
  Range prompt = {32, 32};  // new tokens of a turn
  Range answer = {64, 64};  // tokens
  Range gap_ms = {0, 0};    // between an answer and the next turn
};

// From `at` on, agents of the group answer at other lengths.
struct Change {
  TimeUs at = 0;
  std::string group;
  Range answer;
};

struct Scenario {
  std::string name;
  std::string about;
  TimeUs duration = 0;  // it may end earlier, when no agent has anything left to do
  uint64_t seed = 1;
  ServerPlan server;
  ModelCost cost;
  std::vector<PoolPlan> pools;
  std::vector<GroupPlan> groups;
  std::vector<Change> changes;
};

}  // namespace polykv
