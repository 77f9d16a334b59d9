// PolyKV's own flags; every other flag is llama-server's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace polykv {

struct Options {
  int32_t max_pools = 16;
  int32_t max_sessions = -1;  // -1: twice the number of slots
  int32_t grace_ms = 30'000;
  int32_t session_idle_ms = 600'000;
  int32_t session_hot_ms = 5'000;
  int32_t park_mib = 512;
  int32_t max_waiting = 512;
  int32_t drain_ms = 30'000;
  int32_t prefill_chunk = 256;
  int32_t tps_interval_ms = 500;
  int32_t watchdog_ms = 10'000;
  int32_t matmul = 1;
  bool throttle = false;
  std::string attention = "off";  // auto, on or off
  bool isolate_keys = false;
  std::string admin_key;

  // Which of them came from the command line or the environment.
  bool pools_given = false;
  bool sessions_given = false;
};

struct ParsedOptions {
  Options options;
  std::vector<std::string> rest;  // the program's name and what llama-server is to parse
};

// Reads the environment (`get_env`, POLYKV_MAX_POOLS and the like), then the command line, which
// wins. A flag is `--name value` or `--name=value`; one that is on or off needs no value. A Problem
// is one line for a person.
Result<ParsedOptions> ParseOptions(const std::vector<std::string>& arguments,
                                   const std::function<const char*(const char* name)>& get_env);

// Whether what is asked for on keys can be, with these API keys. A Problem is one line for a
// person.
std::optional<Problem> CheckKeys(const Options& options, const std::vector<std::string>& api_keys);

// For --help, in llama-server's layout.
std::string OptionsHelp();

}  // namespace polykv
