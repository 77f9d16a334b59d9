#include "app/options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

namespace polykv {
namespace {

constexpr int32_t kMaxText = 4096;
constexpr int32_t kDayMs = 24 * 60 * 60 * 1000;
constexpr std::string_view kPrefix = "--polykv-";

// A number, a text, or on and off.
using Member = std::variant<int32_t Options::*, std::string Options::*, bool Options::*>;

// The only place where an option is declared.
struct Declaration {
  const char* name;  // without the prefix
  Member value;
  int32_t min;  // of a text: of its length
  int32_t max;
  const char* help;
  bool Options::* given = nullptr;
  std::string_view choices = {};  // of a text: what it may be, separated by |
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
     "prompt tokens per step while other requests decode; fewer where a pool's floor asks for it"},
    {"throttle", &Options::throttle, 0, 1,
     "while a session is under its pool's floor, requests without a floor and sessions more than "
     "25 % over theirs let steps pass"},
    {"tps-interval-ms", &Options::tps_interval_ms, 10, kDayMs,
     "time between two events of GET /polykv/tps"},
    {"watchdog-ms", &Options::watchdog_ms, 0, kDayMs,
     "GET /health answers 503 once nothing has been computed for that long although there is work; "
     "0: never"},
    {"matmul", &Options::matmul, 0, 1,
     "1: multiply Q4_1 weights by our own kernel, with the same bits; 0: by ggml's"},
    {"attention", &Options::attention, 1, kMaxText,
     "auto, on or off: compute attention by our own kernel, which reads each cell once for all "
     "streams that see it; auto: where that is faster than ggml's",
     nullptr, "auto|on|off"},
    {"isolate-keys", &Options::isolate_keys, 0, 1,
     "every API key has pools, sessions, streams and reuse of its own, and sees nobody else's"},
    {"admin-key", &Options::admin_key, 1, kMaxText,
     "one more API key, with --polykv-isolate-keys: it sees what all have, and opens /metrics and "
     "what changes the server for all"},
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

template <typename T>
bool Is(const Declaration& declaration) {
  return std::holds_alternative<T Options::*>(declaration.value);
}

template <typename T>
T& ValueIn(Options* options, const Declaration& declaration) {
  return options->*std::get<T Options::*>(declaration.value);
}

std::string Range(const Declaration& declaration) {
  return std::to_string(declaration.min) + " to " + std::to_string(declaration.max);
}

bool IsAmong(std::string_view choices, std::string_view text) {
  while (true) {
    const size_t end = choices.find('|');
    if (choices.substr(0, end) == text) return true;
    if (end == std::string_view::npos) return false;
    choices.remove_prefix(end + 1);
  }
}

std::optional<Problem> SetText(const Declaration& declaration, const std::string& shown,
                               std::string_view text, Options* options) {
  const auto length = static_cast<int32_t>(std::min<size_t>(text.size(), kMaxText + 1));
  if (length < declaration.min || length > declaration.max) {
    return BadOption(shown + " needs " + Range(declaration) + " bytes");
  }
  if (!declaration.choices.empty() && !IsAmong(declaration.choices, text)) {
    return BadOption(shown + " is one of " + std::string(declaration.choices) + ", not '" +
                     std::string(text) + "'");
  }
  ValueIn<std::string>(options, declaration) = text;
  return std::nullopt;
}

std::optional<Problem> Set(const Declaration& declaration, const std::string& shown,
                           std::string_view text, Options* options) {
  if (Is<std::string>(declaration)) return SetText(declaration, shown, text, options);
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || value < declaration.min || value > declaration.max) {
    return BadOption(shown + " needs a whole number from " + Range(declaration) + ", not '" +
                     std::string(text) + "'");
  }
  if (Is<bool>(declaration)) {
    ValueIn<bool>(options, declaration) = value != 0;
  } else {
    ValueIn<int32_t>(options, declaration) = value;
  }
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
    std::string text = "1";
    if (equals != std::string::npos) {
      text = argument.substr(equals + 1);
    } else if (!Is<bool>(*declaration)) {
      if (i + 1 == arguments.size()) return BadOption(flag + " needs a value");
      text = arguments[++i];
    }
    if (auto problem = Set(*declaration, flag, text, &parsed.options)) return *std::move(problem);
  }
  return parsed;
}

std::optional<Problem> CheckKeys(const Options& options, const std::vector<std::string>& api_keys) {
  if (options.isolate_keys && api_keys.empty()) {
    return BadOption("--polykv-isolate-keys needs keys to tell apart (--api-key)");
  }
  if (options.admin_key.empty()) return std::nullopt;
  if (!options.isolate_keys) {
    return BadOption("--polykv-admin-key has no use without --polykv-isolate-keys");
  }
  if (std::find(api_keys.begin(), api_keys.end(), options.admin_key) != api_keys.end()) {
    return BadOption("--polykv-admin-key must not be one of the API keys");
  }
  return std::nullopt;
}

std::string OptionsHelp() {
  constexpr size_t kHelpColumn = 40;
  Options defaults;
  std::string help = "\n----- PolyKV params -----\n\n";
  for (const Declaration& declaration : kDeclarations) {
    std::string line = std::string(kPrefix) + declaration.name;
    if (!declaration.choices.empty()) {
      line += " " + std::string(declaration.choices);
    } else if (!Is<bool>(declaration)) {
      line += Is<std::string>(declaration) ? " TEXT" : " N";
    }
    line.resize(std::max(line.size() + 1, kHelpColumn), ' ');
    line += declaration.help;
    const int32_t value = Is<int32_t>(declaration) ? ValueIn<int32_t>(&defaults, declaration) : -1;
    if (value >= 0) line += " (default: " + std::to_string(value) + ")";
    if (!declaration.choices.empty()) {
      line += " (default: " + ValueIn<std::string>(&defaults, declaration) + ")";
    }
    help += line + "\n" + std::string(kHelpColumn, ' ') + "(env: " + EnvName(declaration) + ")\n";
  }
  return help;
}

}  // namespace polykv
