// llama-server's command line, as far as it is not PolyKV's own flags.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

struct common_params;

namespace polykv {

struct ServerParams {
  std::shared_ptr<common_params> params;  // with llama-server's own adjustments of the defaults
  // The cache of this server is one for all sequences, whatever llama-server would do, unless
  // --no-kv-unified (or its environment variable) asks for one buffer per sequence.
  bool split_cache = false;
  std::vector<std::string> warnings;  // flags that have no effect here, one line each
};

// Sets up llama.cpp's logging and parses; `arguments` begins with the program's name. --help and
// the like print and end the process; `print_usage` adds to the help. A Problem is one line for a
// person.
Result<ServerParams> ParseServerParams(const std::vector<std::string>& arguments,
                                       void (*print_usage)(int, char**));

// Finds or downloads the model that -hf, -mu or -dr names; sets the path. Nothing to do with -m.
Result<std::string> ResolveModelPath(common_params* params);

// A line in llama.cpp's log, at its level for debugging. Any thread.
void LogDebug(const std::string& line);

// Writes out what llama.cpp has logged so far.
void FlushLog();

}  // namespace polykv
