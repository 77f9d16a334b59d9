#include "api/protocol/server_params.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "api/protocol/stderr_capture.h"
#include "arg.h"
#include "common.h"
#include "llama.h"
#include "log.h"

namespace polykv {
namespace {

Problem BadCommandLine(std::string message) {
  return {.status = 400, .type = "bad_option", .message = std::move(message)};
}

// One clear line out of what the parser wrote about `arguments`.
std::string ParserComplaint(std::string text, const std::vector<std::string>& arguments) {
  constexpr std::string_view kError = "error: ";
  constexpr std::string_view kHandling = "error while handling argument \"";
  const size_t start = text.find("error");
  if (start == std::string::npos) return "the command line is wrong (--help shows every flag)";
  text = text.substr(start, text.find('\n', start) - start);
  if (text.starts_with(kError)) return text.substr(kError.size());
  const size_t end = text.find("\": ");
  if (!text.starts_with(kHandling) || end == std::string::npos) return text;
  const std::string flag = text.substr(kHandling.size(), end - kHandling.size());
  std::string reason = text.substr(end + 3);
  if (reason.starts_with(kError)) reason.erase(0, kError.size());
  if (reason.starts_with("sto")) reason = "not a number, or one that is too large";
  auto value = std::find(arguments.begin(), arguments.end(), flag);
  if (value != arguments.end()) ++value;
  return flag + (value == arguments.end() ? "" : " " + *value) + ": " + reason;
}

// Parses; nothing if all is well. The parser ends the process on some errors: then the line is
// written as this object goes.
class QuietParser {
 public:
  explicit QuietParser(const std::vector<std::string>& arguments) : arguments_(arguments) {}
  ~QuietParser() {
    if (!running_) return;
    const std::string written = capture_->Stop();
    if (written.find("error") == std::string::npos) {  // --version
      std::fputs(written.c_str(), stderr);
      return;
    }
    std::fprintf(stderr, "polykv-server: error: %s\n",
                 ParserComplaint(written, arguments_).c_str());
  }

  std::optional<Problem> Parse(common_params* params, void (*print_usage)(int, char**)) {
    std::vector<std::string> copies = arguments_;
    std::vector<char*> argv;
    for (std::string& argument : copies) argv.push_back(argument.data());
    argv.push_back(nullptr);
    capture_.emplace();
    running_ = true;
    const bool ok = common_params_parse(static_cast<int>(copies.size()), argv.data(), *params,
                                        LLAMA_EXAMPLE_SERVER, print_usage);
    running_ = false;
    const std::string written = capture_->Stop();
    if (!ok) return BadCommandLine(ParserComplaint(written, arguments_));
    std::fputs(written.c_str(), stderr);
    return std::nullopt;
  }

 private:
  const std::vector<std::string> arguments_;
  std::optional<StderrCapture> capture_;
  bool running_ = false;
};

// Whether the last word on the layout was a no; the command line beats the environment.
bool AsksForSplitCache(const std::vector<std::string>& arguments) {
  bool split = std::getenv("LLAMA_ARG_NO_KV_UNIFIED") != nullptr;
  if (const char* value = std::getenv("LLAMA_ARG_KV_UNIFIED"); !split && value != nullptr) {
    split = common_arg_utils::is_falsey(value);
  }
  for (std::string argument : arguments) {
    if (argument.starts_with("--")) std::replace(argument.begin(), argument.end(), '_', '-');
    if (argument == "--no-kv-unified" || argument == "-no-kvu") split = true;
    if (argument == "--kv-unified" || argument == "-kvu") split = false;
  }
  return split;
}

// What llama-server does to its parameters between the command line and the model.
void AdjustAsLlamaServer(common_params* params) {
  if (params->n_parallel < 0) {
    params->n_parallel = 4;
    params->kv_unified = true;
  }
  if (params->embedding) params->n_batch = std::min(params->n_batch, params->n_ubatch);
  const bool sized_by_slots = params->kv_unified_per_slot > 0 && params->n_ctx == 0 &&
                              static_cast<uint32_t>(params->fit_params_min_ctx) != UINT32_MAX;
  if (sized_by_slots) params->n_ctx = params->n_parallel * params->kv_unified_per_slot;
  const std::string name = params->model.get_name();
  if (params->model_alias.empty() && !name.empty()) params->model_alias.insert(name);
}

std::optional<Problem> CheckSupported(const common_params& params) {
  const bool no_model = params.model.path.empty() && params.model.url.empty() &&
                        params.model.hf_repo.empty() && params.model.docker_repo.empty();
  if (no_model) return BadCommandLine("no model given: use -m FILE");
  if (params.n_ctx < 0) {
    return BadCommandLine("-c " + std::to_string(params.n_ctx) +
                          ": a context has 0 or more tokens");
  }
  if (params.n_batch < 1 || params.n_ubatch < 1) {
    return BadCommandLine("-b and -ub need a number of tokens, 1 or more");
  }
  if (!params.ssl_file_key.empty() || !params.ssl_file_cert.empty()) {
    return BadCommandLine("--ssl-key-file and --ssl-cert-file: this server is built without TLS");
  }
  return std::nullopt;
}

bool Drafts(const common_params_speculative& params) {
  return std::find(params.types.begin(), params.types.end(),
                   COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE) != params.types.end();
}

std::vector<std::string> Warnings(const common_params& params) {
  std::vector<std::string> warnings;
  const auto add = [&warnings](bool is_set, const char* text) {
    if (is_set) warnings.emplace_back(text);
  };
  add(!params.mmproj.path.empty() || !params.mmproj.url.empty(),
      "--mmproj has no effect: images and audio are not supported");
  add(params.speculative.has_dft() && !Drafts(params.speculative),
      "a draft model has no effect without --spec-type draft-simple");
  add(!params.server_tools.empty(),
      "--tools lets every client of this server read and write files and run commands");
  add(params.ui_mcp_proxy || !params.mcp_servers_config.empty() || !params.mcp_servers_json.empty(),
      "MCP is not supported: its flags have no effect");
  return warnings;
}

}  // namespace

Result<ServerParams> ParseServerParams(const std::vector<std::string>& arguments,
                                       void (*print_usage)(int, char**)) {
  common_init();
  ServerParams parsed;
  parsed.params = std::make_shared<common_params>();
  static QuietParser parser(arguments);  // static: exit() destroys it
  if (std::optional<Problem> problem = parser.Parse(parsed.params.get(), print_usage)) {
    return *std::move(problem);
  }
  AdjustAsLlamaServer(parsed.params.get());
  if (std::optional<Problem> problem = CheckSupported(*parsed.params)) return *std::move(problem);
  parsed.split_cache = !parsed.params->kv_unified && AsksForSplitCache(arguments);
  parsed.warnings = Warnings(*parsed.params);
  return parsed;
}

Result<std::string> ResolveModelPath(common_params* params) {
  const bool is_remote = !params->model.url.empty() || !params->model.hf_repo.empty() ||
                         !params->model.docker_repo.empty();
  if (!is_remote) return params->model.path;
  try {
    common_models_handler handler = common_models_handler_init(*params, LLAMA_EXAMPLE_SERVER);
    common_models_handler_apply(handler, *params);
    return params->model.path;
  } catch (const std::exception& error) {
    return Problem{.status = 500,
                   .type = "server_error",
                   .message = std::string("cannot download the model: ") + error.what()};
  }
}

void LogDebug(const std::string& line) { LOG_DBG("%s\n", line.c_str()); }

void FlushLog() { common_log_flush(common_log_main()); }

}  // namespace polykv
