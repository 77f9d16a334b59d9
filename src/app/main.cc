// polykv-server: command line in, server up, exit code out.
#include <clocale>
#include <cstdio>
#include <cstdlib>

#include "app/options.h"
#include "app/server.h"
#include "app/signal_pipe.h"
#include "llama/cpu_check.h"

namespace {

// The last and clear line of a start that failed.
int Fail(const std::string& reason) {
  polykv::FlushLog();
  std::fprintf(stderr, "polykv-server: error: %s\n", reason.c_str());
  return 1;
}

void PrintUsage(int, char**) { std::fputs(polykv::OptionsHelp().c_str(), stdout); }

int Serve(const polykv::ServerParams& params, const polykv::Options& options,
          const std::optional<polykv::PredictConfig>& predict) {
  for (const std::string& warning : params.warnings) {
    std::fprintf(stderr, "polykv-server: warning: %s\n", warning.c_str());
  }
  const bool has_pools = options.max_pools > 0 && (!params.split_cache || options.pools_given);
  if (params.params->ctx_shift && has_pools) {
    std::fprintf(
        stderr,
        "polykv-server: warning: --context-shift is for plain requests; one with a pool or "
        "a session ends when its context is full\n");
  }
  llama_backend_init();
  llama_numa_init(params.params->numa);
  {
    polykv::Server server(params, options, predict);
    if (const std::optional<polykv::Problem> problem = server.Boot()) return Fail(problem->message);
    polykv::SignalPipe signals;
    polykv::FlushLog();
    std::fputs(server.Banner().c_str(), stdout);
    std::fflush(stdout);
    server.Run(&signals);
  }
  llama_backend_free();
  polykv::FlushLog();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string missing = polykv::MissingCpuFeatures(); !missing.empty()) {
    std::fprintf(stderr,
                 "polykv-server: error: built for a processor with %s, which this one lacks\n",
                 missing.c_str());
    return 1;
  }
  std::setlocale(LC_NUMERIC, "C");
  const auto get_env = [](const char* name) -> const char* { return std::getenv(name); };
  polykv::Result<polykv::ParsedOptions> parsed = polykv::ParseOptions({argv, argv + argc}, get_env);
  if (!parsed.ok()) return Fail(parsed.problem().message);
  polykv::Result<polykv::ServerParams> params =
      polykv::ParseServerParams(parsed.value().rest, &PrintUsage);
  if (!params.ok()) return Fail(params.problem().message);
  const polykv::Result<std::optional<polykv::PredictConfig>> predict =
      polykv::ReadPredictConfig(get_env);
  if (!predict.ok()) return Fail(predict.problem().message);
  return Serve(params.value(), parsed.value().options, predict.value());
}
