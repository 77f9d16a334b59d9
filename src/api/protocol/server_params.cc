#include "api/protocol/server_params.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "arg.h"
#include "common.h"
#include "llama.h"
#include "log.h"

namespace polykv {
namespace {

Problem BadCommandLine(std::string message) {
  return {.status = 400, .type = "bad_option", .message = std::move(message)};
}

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
  if (params.n_ctx < 0) return BadCommandLine("-c needs a number of tokens, 0 or more");
  if (params.n_batch < 1 || params.n_ubatch < 1) {
    return BadCommandLine("-b and -ub need a number of tokens, 1 or more");
  }
  if (params.embedding) return BadCommandLine("--embedding and --reranking are not supported");
  if (!params.ssl_file_key.empty() || !params.ssl_file_cert.empty()) {
    return BadCommandLine("--ssl-key-file and --ssl-cert-file: this server is built without TLS");
  }
  return std::nullopt;
}

std::vector<std::string> Warnings(const common_params& params) {
  std::vector<std::string> warnings;
  const auto add = [&warnings](bool is_set, const char* text) {
    if (is_set) warnings.emplace_back(text);
  };
  add(!params.mmproj.path.empty() || !params.mmproj.url.empty(),
      "--mmproj has no effect: images and audio are not supported");
  add(params.speculative.has_dft(),
      "draft models have no effect: there is no speculative decoding");
  add(params.ctx_shift, "--context-shift has no effect: a stream ends when its context is full");
  add(!params.slot_save_path.empty(), "--slot-save-path has no effect");
  add(params.sleep_idle_seconds >= 0, "--sleep-idle-seconds has no effect");
  add(!params.server_tools.empty(), "--tools has no effect");
  return warnings;
}

}  // namespace

Result<ServerParams> ParseServerParams(std::vector<std::string> arguments,
                                       void (*print_usage)(int, char**)) {
  common_init();
  ServerParams parsed;
  parsed.params = std::make_shared<common_params>();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const int argc = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  if (!common_params_parse(argc, argv.data(), *parsed.params, LLAMA_EXAMPLE_SERVER, print_usage)) {
    return BadCommandLine("the command line is wrong as said above (--help shows every flag)");
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

void FlushLog() { common_log_flush(common_log_main()); }

}  // namespace polykv
