#include "app/options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace polykv {
namespace {

constexpr int32_t kDayMs = 24 * 60 * 60 * 1000;
constexpr std::string_view kPrefix = "--polykv-";

// The only place where an option is declared.
struct Declaration {
  const char* name;  // without the prefix
  int32_t Options::* value;
  int32_t min;
  int32_t max;
  const char* help;
  bool Options::* given = nullptr;
};

constexpr Declaration kDeclarations[] = {
    {"max-pools", &Options::max_pools, 0, 254,
     "sequences kept for pools; 0: no pools (at most 4 by default with a sliding window or a "
     "recurrent state, none with --no-kv-unified: each takes memory there)",
     &Options::pools_given},
    {"max-sessions", &Options::max_sessions, 0, 254,
     "sequences kept for sessions; 0: none (default: twice --parallel, once with a sliding window "
     "or a recurrent state, none with --no-kv-unified and without pools)",
     &Options::sessions_given},
    {"grace-ms", &Options::grace_ms, 0, kDayMs, "how long a pool without references lives on"},
    {"session-idle-ms", &Options::session_idle_ms, 1, std::numeric_limits<int32_t>::max(),
     "how long a session that is not used is remembered"},
    {"session-hot-ms", &Options::session_hot_ms, 0, std::numeric_limits<int32_t>::max(),
     "how long a session that is not used stays in the cache while others decode; then its cells "
     "go to the host memory of --cache-ram"},
    {"park-mib", &Options::park_mib, 0, std::numeric_limits<int32_t>::max(),
     "MiB of host memory for running requests that wait when the cache is full; 0: none waits, "
     "they "
     "end early"},
    {"max-waiting", &Options::max_waiting, 1, 100'000,
     "waiting requests; more are answered with 503"},
    {"drain-ms", &Options::drain_ms, 0, kDayMs, "how long a stopping server lets streams run on"},
    {"prefill-chunk", &Options::prefill_chunk, 16, 65'536,
     "prompt tokens per step while other requests decode"},
    {"tps-interval-ms", &Options::tps_interval_ms, 10, kDayMs,
     "time between two events of GET /polykv/tps"},
    {"matmul", &Options::matmul, 0, 1,
     "1: multiply Q4_1 weights by our own kernel, with the same bits; 0: by ggml's"},
};

std::string EnvName(const Declaration& declaration) {
  std::string name = "POLYKV_" + std::string(declaration.name);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    if (c == '-') return '_';
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name;
}

const Declaration* FindOrNull(std::string_view name) {
  const auto found = std::find_if(std::begin(kDeclarations), std::end(kDeclarations),
                                  [name](const Declaration& d) { return d.name == name; });
  return found == std::end(kDeclarations) ? nullptr : found;
}

Problem BadOption(std::string message) {
  return {.status = 400, .type = "bad_option", .message = std::move(message)};
}

std::optional<Problem> Set(const Declaration& declaration, const std::string& shown,
                           std::string_view text, Options* options) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || value < declaration.min || value > declaration.max) {
    return BadOption(shown + " needs a whole number from " + std::to_string(declaration.min) +
                     " to " + std::to_string(declaration.max) + ", not '" + std::string(text) +
                     "'");
  }
  options->*declaration.value = value;
  if (declaration.given != nullptr) options->*declaration.given = true;
  return std::nullopt;
}

}  // namespace

Result<ParsedOptions> ParseOptions(const std::vector<std::string>& arguments,
                                   const std::function<const char*(const char* name)>& get_env) {
  ParsedOptions parsed;
  for (const Declaration& declaration : kDeclarations) {
    const std::string name = EnvName(declaration);
    const char* text = get_env(name.c_str());
    if (text == nullptr) continue;
    if (auto problem = Set(declaration, name, text, &parsed.options)) return *std::move(problem);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with(kPrefix)) {
      parsed.rest.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    const Declaration* declaration = FindOrNull(std::string_view(flag).substr(kPrefix.size()));
    if (declaration == nullptr) return BadOption("unknown flag " + flag + " (see --help)");
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return BadOption(flag + " needs a value");
    }
    const std::string text =
        equals == std::string::npos ? arguments[++i] : argument.substr(equals + 1);
    if (auto problem = Set(*declaration, flag, text, &parsed.options)) return *std::move(problem);
  }
  return parsed;
}

std::string OptionsHelp() {
  constexpr size_t kHelpColumn = 40;
  const Options defaults;
  std::string help = "\n----- PolyKV params -----\n\n";
  for (const Declaration& declaration : kDeclarations) {
    std::string line = std::string(kPrefix) + declaration.name + " N";
    line.resize(std::max(line.size() + 1, kHelpColumn), ' ');
    line += declaration.help;
    const int32_t value = defaults.*declaration.value;
    if (value >= declaration.min) line += " (default: " + std::to_string(value) + ")";
    help += line + "\n" + std::string(kHelpColumn, ' ') + "(env: " + EnvName(declaration) + ")\n";
  }
  return help;
}

}  // namespace polykv
