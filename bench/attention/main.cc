// Measures attention by ggml and by ours on one model; see bench/attention.py, which runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention/streams.h"
#include "matmul/install.h"
#include "tree/median.h"
#include "tree/report.h"

namespace polykv {
namespace {

constexpr int32_t kPrefillRuns = 3;

// STREAMS:PREFIX:OWN:GROUPS:IDLE
StreamShape ParseShape(const std::string& text) {
  StreamShape shape;
  const int n_read = std::sscanf(text.c_str(), "%d:%d:%d:%d:%d", &shape.n_streams, &shape.prefix,
                                 &shape.own, &shape.n_groups, &shape.idle);
  if (n_read != 5) {
    std::fprintf(stderr, "no shape: %s\n", text.c_str());
    std::exit(2);
  }
  return shape;
}

void Decode(LlamaBackend* model, AttentionSwitch* attention, const std::string& cache_type,
            const StreamShape& shape, int32_t n_steps) {
  Say("%d streams, %d shared cells in each of %d groups, %d own, %d idle, %s", shape.n_streams,
      shape.prefix, shape.n_groups, shape.own, shape.idle, cache_type.c_str());
  Streams streams(model, attention, shape);
  const BothUs us = streams.Decode(n_steps);
  Row("decode")
      .Add("cache_type", cache_type)
      .Add("streams", shape.n_streams)
      .Add("prefix", shape.prefix)
      .Add("own", shape.own)
      .Add("groups", shape.n_groups)
      .Add("idle", shape.idle)
      .Add("ggml_us", Median(us[0]))
      .Add("ours_us", Median(us[1]));
}

void Prefill(LlamaBackend* model, AttentionSwitch* attention, const std::string& cache_type,
             int32_t n_tokens) {
  Say("a prompt of %d tokens, %s", n_tokens, cache_type.c_str());
  const BothUs us = PrefillTurns(model, attention, n_tokens, kPrefillRuns);
  Row("prefill")
      .Add("cache_type", cache_type)
      .Add("tokens", n_tokens)
      .Add("ggml_us", Median(us[0]))
      .Add("ours_us", Median(us[1]));
}

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() < 5) {
    std::fputs(
        "usage: polykv-bench-attention MODEL f16|q8_0 STEPS PREFILL_TOKENS "
        "STREAMS:PREFIX:OWN:GROUPS:IDLE...\n",
        stderr);
    return 2;
  }
  const std::string& cache_type = arguments[1];
  const int32_t n_steps = std::atoi(arguments[2].c_str());
  const int32_t n_prefill = std::atoi(arguments[3].c_str());
  std::vector<StreamShape> shapes;
  ModelOptions options{.path = arguments[0], .n_ctx = n_prefill, .n_seq_max = 1};
  if (cache_type == "q8_0") options.cache_type = GGML_TYPE_Q8_0;
  for (size_t i = 4; i < arguments.size(); ++i) {
    shapes.push_back(ParseShape(arguments[i]));
    options.n_ctx = std::max(options.n_ctx, shapes.back().n_cells(2 * n_steps + 2));
    options.n_seq_max = std::max(options.n_seq_max, shapes.back().n_sequences());
  }
  options.n_ctx = (options.n_ctx + 255) / 256 * 256;
  InstallMatmul();
  AttentionSwitch* const attention = InstallAttention();
  POLYKV_CHECK(attention != nullptr);
  const auto model = LoadModelOrExit(options);
  if (n_prefill > 0) Prefill(model.get(), attention, cache_type, n_prefill);
  for (const StreamShape& shape : shapes) {
    Decode(model.get(), attention, cache_type, shape, n_steps);
  }
  return 0;
}

}  // namespace
}  // namespace polykv

int main(int argc, char** argv) { return polykv::Main({argv + 1, argv + argc}); }
