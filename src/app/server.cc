#include "app/server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <map>
#include <random>
#include <utility>

#include "api/protocol/json.h"
#include "api/routes.h"
#include "app/limits.h"
#include "app/version.h"
#include "llama/llama_drafter.h"
#include "llama/llama_sampler.h"
#include "llama/sharing_probe.h"
#include "matmul/install.h"

namespace polykv {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMaxConnections = 4096;
constexpr size_t kOtherFiles = 512;  // open besides, refused connections among them
constexpr milliseconds kPoll{50};
constexpr milliseconds kWatch{250};
constexpr int64_t kMiB = 1024 * 1024;
constexpr float kTrialTolerance = 0.05F;  // ggml's attention rounds to half precision
constexpr int kFlushRounds = 40;          // rounds of kPoll for last events to reach their clients

// How many files the process may have open, after raising that as far as it may.
size_t OpenFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t given = std::exchange(limit.rlim_cur, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : given;
}

HttpServerConfig HttpConfig(const common_params& params, const Options& options,
                            const std::optional<PredictConfig>& predict) {
  HttpServerConfig config;
  config.hosts = params.hostnames;
  config.port = predict.has_value() ? predict->port : params.port;
  config.prefix = params.api_prefix;
  config.static_path = params.ui ? params.public_path : "";
  config.api_keys = params.api_keys;
  config.isolate_keys = options.isolate_keys;
  config.admin_key = options.admin_key;
  config.cors_origins = params.cors_origins;
  config.cors_methods = params.cors_methods;
  config.cors_headers = params.cors_headers;
  config.cors_credentials = params.cors_credentials;
  config.max_connections =
      std::clamp(OpenFileLimit(), kOtherFiles + 64, kOtherFiles + kMaxConnections) - kOtherFiles;
  config.read_timeout_s = params.timeout_read;
  config.write_timeout_s = params.timeout_write;
  config.reuse_port = params.reuse_port;
  return config;
}

AccessRules Access(const common_params& params) {
  const bool loopback_only = std::all_of(
      params.hostnames.begin(), params.hostnames.end(),
      [](const std::string& host) { return IsLoopback(host) || host.ends_with(".sock"); });
  return {.loopback_only = loopback_only,
          .cors_origins = params.cors_origins,
          .cors_origins_explicit = params.cors_origins_explicit};
}

LayoutRequest Layout(const ServerParams& params) {
  return {.n_parallel = params.params->n_parallel,
          .kv_unified = params.params->kv_unified,
          .split_cache = params.split_cache,
          .embedding = params.params->embedding,
          .n_ubatch = params.params->n_ubatch,
          .n_ctx = params.params->n_ctx,
          .per_slot_limit = params.params->kv_unified_per_slot};
}

AdapterSet AdaptersAtStart(const common_params& params) {
  std::map<int32_t, float> scale_of;
  for (const common_adapter_lora_info& adapter : params.lora_adapters) {
    scale_of.emplace(static_cast<int32_t>(scale_of.size()), adapter.scale);
  }
  return {scale_of, static_cast<int32_t>(scale_of.size())};
}

TimeUs IdleUs(const common_params& params) {
  return params.sleep_idle_seconds < 0 ? -1 : TimeUs{params.sleep_idle_seconds} * 1'000'000;
}

PoolId RandomBootId() {
  std::random_device random;
  return 1000 * (1 + static_cast<PoolId>(random() % 999'999U));
}

int64_t MemoryBytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

int64_t UnixMs() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(since_epoch).count();
}

// What llama-server keeps in host memory beside the cache.
void SetHostMemory(const common_params& params, const LayoutRequest& layout, EngineConfig* config) {
  config->host_bytes = params.cache_ram_mib < 0 ? -1 : params.cache_ram_mib * kMiB;
  config->save_idle_slots = params.cache_idle_slots;
  config->clear_idle_slots = layout.kv_unified;
  config->checkpoints = {.max_count = params.n_ctx_checkpoints,
                         .min_step = params.checkpoint_min_step};
}

std::string HostMemoryText(const common_params& params) {
  if (params.cache_ram_mib == 0) return "no prompt cache";
  return params.cache_ram_mib < 0
             ? "prompt cache without a limit"
             : "prompt cache of at most " + std::to_string(params.cache_ram_mib) + " MiB";
}

const char* SharingName(const ModelInfo& info) {
  switch (info.sharing) {
    case Sharing::kAnyPosition:
      return "any_position";
    case Sharing::kWindow:
      return "window";
    case Sharing::kAtTip:
      return "at_tip";
    case Sharing::kOff:
      break;
  }
  return "off";
}

std::string SharingText(const ModelInfo& info, bool swa_full) {
  std::string text = SharingName(info);
  switch (info.sharing) {
    case Sharing::kAnyPosition:
      return swa_full ? text + " (--swa-full)" : text;
    case Sharing::kWindow:
      return text + " (prefixes whose last " + std::to_string(info.n_swa) +
             " tokens are still there; --swa-full: any)";
    case Sharing::kAtTip:
      return text + " (whole pools only: the model has a recurrent state)";
    case Sharing::kOff:
      break;
  }
  return text + " (" + info.sharing_reason + ")";
}

std::string MiBText(int64_t bytes) {
  const int64_t tenths = (bytes * 10 + kMiB / 2) / kMiB;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

}  // namespace

Server::Server(const ServerParams& params, const Options& options,
               std::optional<PredictConfig> predict)
    : params_(params),
      options_(options),
      predict_(std::move(predict)),
      attention_(InstallAttention()),
      layout_(Layout(params)),
      watchdog_(TimeUs{options.watchdog_ms} * 1000),
      gate_({.idle_us = IdleUs(*params.params),
             .is_quiet = [this] { return IsQuiet(); },
             .unload = [this] { Unload(); },
             .load = [this] { return Load(); }}),
      http_(HttpConfig(*params.params, options, predict_)) {}

std::optional<Problem> Server::Boot() {
  if (auto problem = CheckKeys(options_, params_.params->api_keys)) return problem;
  if (options_.isolate_keys && DraftsFromOthers(*params_.params)) {
    return Problem{.message =
                       "--spec-type ngram-mod and ngram-cache draft what any stream has "
                       "said: not with --polykv-isolate-keys"};
  }
  Result<std::unique_ptr<ServerTools>> tools = ServerTools::Make(*params_.params);
  if (!tools.ok()) return tools.problem();
  tools_ = std::move(tools.value());

  services_.gate = &gate_;
  services_.streams = &streams_;
  services_.clock = &clock_;
  services_.unix_ms = UnixMs;
  services_.events = &events_;
  services_.event_log_id = RandomBootId();
  services_.events_wall = services_.Wall();
  services_.access = Access(*params_.params);
  services_.tools = tools_.get();
  services_.attention_counts = [this] { return CountAttention(); };
  services_.polykv_props = [this] { return PropsJson(); };
  services_.watchdog = &watchdog_;
  AddRoutes(&http_, &services_);
  if (params_.params->ui) AddDashboardRoutes(&http_);
  if (predict_.has_value()) {
    if (std::optional<Problem> problem = AddPredictRoutes(&http_, *predict_)) return problem;
  }
  Result<std::vector<std::string>> addresses = http_.Start();
  if (!addresses.ok()) return addresses.problem();
  addresses_ = std::move(addresses.value());

  own_matmul_ = options_.matmul > 0 && InstallMatmul();
  Result<std::string> path = ResolveModelPath(params_.params.get());
  if (!path.ok()) return path.problem();
  layout_.sharing = ReadSharing(*params_.params);
  Result<EngineConfig> config = PlanSequences(layout_, options_);
  if (!config.ok()) return config.problem();
  config_ = config.value();
  config_.event_log = &events_;
  if (std::optional<Problem> problem = Load()) return problem;
  services_.started_unix_s = UnixMs() / 1000;
  services_.polykv_limits = LimitsJson(
      config_, options_, HttpConfig(*params_.params, options_, predict_), backend_->info());
  services_.tps_interval_us = TimeUs{options_.tps_interval_ms} * 1000;
  return std::nullopt;
}

std::optional<Problem> Server::Load() {
  std::optional<Problem> problem;
  try {
    problem = LoadModel();
    if (!problem.has_value()) problem = StartEngine();
  } catch (const std::exception& error) {
    problem = Problem{.status = 500, .type = "server_error", .message = error.what()};
  }
  if (problem.has_value()) FreeModel();
  return problem;
}

void Server::FreeModel() {
  engine_.reset();
  model_.reset();
  backend_.reset();
}

bool Server::IsQuiet() const {
  const auto snapshot = engine_->Snapshot();
  return engine_->Idle() && snapshot->pools.empty() && snapshot->sessions.empty();
}

void Server::Unload() {
  services_.asleep = {.props = model_->PropsBody(PropsJson(), /*is_sleeping=*/true),
                      .models = model_->ModelsBody(UnixMs() / 1000),
                      .endpoint_metrics = model_->endpoint_metrics(),
                      .snapshot = engine_->Snapshot()};
  FreeModel();
}

std::optional<Problem> Server::LoadModel() {
  common_params params = *params_.params;
  params.kv_unified = !layout_.split_cache;
  params.n_ctx = CacheCells(layout_, params.n_ctx);
  if (auto problem = CheckCells(params.n_ctx, MemoryBytes())) return problem;
  Result<std::unique_ptr<LlamaBackend>> backend =
      LlamaBackend::Load(std::move(params), config_.n_seq_max(), config_.max_pools > 0);
  if (!backend.ok()) return backend.problem();
  backend_ = std::move(backend.value());
  ChooseAttention();
  config_.n_ctx_plain = PlainContext(layout_, backend_->info());
  config_.n_ctx_session = SessionContext(backend_->info());
  config_.adapters = AdaptersAtStart(backend_->params());
  config_.context_shift = backend_->params().ctx_shift;
  config_.slot_prompt_similarity = backend_->params().slot_prompt_similarity;
  SetHostMemory(backend_->params(), layout_, &config_);
  config_.log = LogDebug;
  if (config_.host_bytes != 0 && config_.save_idle_slots) {
    LogDebug("idle slots go to the prompt cache: __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__");
  }
  return std::nullopt;
}

void Server::ChooseAttention() {
  if (attention_ == nullptr || options_.attention == "off") return;
  attention_->on = true;
  if (options_.attention == "on") return;
  const std::optional<AttentionTrial> trial =
      TryAttention(backend_->params().cpuparams.n_threads, clock_);
  if (trial.has_value()) {
    attention_->on = trial->ours_us < trial->ggml_us && trial->difference < kTrialTolerance;
  }
}

AttentionCounts Server::CountAttention() const {
  if (attention_ == nullptr) return {};
  return {.polykv = attention_->n_ours, .ggml = attention_->n_ggml};
}

std::optional<Problem> Server::StartEngine() {
  const bool special = backend_->params().special;
  Result<std::unique_ptr<ServedModel>> model = ServedModel::Make(
      {.params = &backend_->params(),
       .model = backend_->model(),
       .n_ctx_plain = config_.n_ctx_plain,
       .max_generations = config_.n_parallel + config_.max_waiting,
       .pooled_vectors = backend_->info().pooled,
       .make_sampler = [backend = backend_.get(), special](const common_params_sampling& sampling,
                                                           bool post_sampling_probs) {
         return MakeLlamaSampler(*backend, sampling, sampling.n_probs, post_sampling_probs,
                                 special);
       }});
  if (!model.ok()) return model.problem();
  model_ = std::move(model.value());
  config_.boot_id = RandomBootId();  // another one after sleep: ids of pools do not come again
  const auto& slept = services_.asleep.snapshot;
  engine_ = std::make_unique<Engine>(backend_.get(), &clock_, config_,
                                     slept != nullptr ? slept->counters : Counters());
  engine_->Start();
  services_.engine = engine_.get();
  services_.model = model_.get();
  return std::nullopt;
}

std::string Server::PropsJson() const {
  const ModelInfo& info = backend_->info();
  Json props = {{"version", kVersion},
                {"boot_id", config_.boot_id},
                {"max_pools", config_.max_pools},
                {"max_sessions", config_.max_sessions},
                {"layout", info.unified ? "unified" : "split"},
                {"sharing", SharingName(info)}};
  if (!info.sharing_reason.empty()) props["sharing_reason"] = info.sharing_reason;
  props["n_ctx"] = config_.n_ctx_plain;
  props["n_ctx_session"] = config_.n_ctx_session;
  props["kv_cells_total"] = info.n_ctx;
  props["cache_ram_mib"] = backend_->params().cache_ram_mib;
  props["seq_ids_max"] = config_.n_seq_max();
  props["bytes_per_cell"] = info.bytes_per_cell;
  props["reserve_bytes"] = info.reserve_bytes;
  props["bytes_per_sequence"] = info.bytes_per_sequence;
  props["grace_ms"] = config_.grace_ms;
  props["session_idle_ms"] = config_.session_idle_ms;
  props["session_hot_ms"] = config_.session_hot_ms;
  props["park_mib"] = options_.park_mib;
  props["max_waiting"] = config_.max_waiting;
  props["drain_ms"] = options_.drain_ms;
  props["watchdog_ms"] = options_.watchdog_ms;
  props["prefill_chunk"] = config_.prefill_chunk;
  props["throttle"] = config_.throttle;
  props["matmul"] = own_matmul_ ? "polykv" : "ggml";
  const AttentionCounts counts = CountAttention();
  const bool own_attention = attention_ != nullptr && attention_->on;
  props["attention"] = {{"kernel", own_attention ? "polykv" : "ggml"},
                        {"instructions", Name(BestInstructionSet())},
                        {"operations", {{"polykv", counts.polykv}, {"ggml", counts.ggml}}}};
  props["default_policy"] = nullptr;
  props["trust"] = options_.isolate_keys ? "per_key" : "shared";
  return JsonText(props);
}

std::string Server::Banner() const {
  const ModelInfo& info = backend_->info();
  const auto line = [](const std::string& name, const std::string& value) {
    return "  " + name + std::string(name.size() < 10 ? 10 - name.size() : 1, ' ') + value + "\n";
  };
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string text = std::string("PolyKV ") + kVersion + "\n";
  text += line("model", backend_->params().model.path);
  text += line("slots",
               number(config_.n_parallel) + ", context " + number(config_.n_ctx_plain) + " tokens");
  text += line("pools", number(config_.max_pools) + ", grace " + number(config_.grace_ms) + " ms");
  text +=
      line("sessions", number(config_.max_sessions) + ", context " + number(config_.n_ctx_session) +
                           " tokens, forgotten after " + number(config_.session_idle_ms) + " ms");
  text += line("KV", number(info.n_ctx) + " cells of " + number(info.bytes_per_cell) + " bytes, " +
                         (info.unified ? "unified" : "split") + ", " + number(config_.n_seq_max()) +
                         " sequences");
  text += line("reserve", MiBText(info.reserve_bytes) + " for sequences beside the slots; " +
                              MiBText(info.bytes_per_sequence) + " for each pool or session more");
  text += line("host", HostMemoryText(backend_->params()));
  text += line("sharing", SharingText(info, backend_->params().swa_full));
  text += line("queue", number(config_.max_waiting) + " waiting requests, prefill chunk " +
                            number(config_.prefill_chunk) + " tokens, drain " +
                            number(options_.drain_ms) + " ms");
  for (const std::string& address : addresses_) text += line("listening", address);
  return text;
}

void Server::Drain(SignalPipe* signals) {
  engine_->BeginDrain();
  const TimeUs deadline = clock_.NowUs() + TimeUs{options_.drain_ms} * 1000;
  while (!engine_->Idle() && clock_.NowUs() < deadline) {
    if (signals->Wait(kPoll)) std::_Exit(1);
  }
  engine_->Stop();
}

void Server::LookAtProgress() {
  const ModelGate::Glance glance = gate_.Look();
  const uint64_t progress = glance.loaded ? engine_->n_steps() + backend_->n_operations() : 0;
  watchdog_.Look(progress, glance.loaded && !engine_->Idle(), clock_.NowUs());
}

void Server::Run(SignalPipe* signals) {
  http_.SetReady();
  const milliseconds poll = params_.params->sleep_idle_seconds < 0 ? kWatch : kPoll;
  while (!signals->Wait(poll)) {
    LookAtProgress();
    gate_.Poll(clock_.NowUs());
  }
  while (!gate_.Close()) {
    if (signals->Wait(kPoll)) std::_Exit(1);
  }
  if (engine_ != nullptr) Drain(signals);
  events_.Close();
  for (int round = 0; round < kFlushRounds && http_.n_open() > 0; ++round) {
    if (signals->Wait(kPoll)) std::_Exit(1);
  }
  http_.Stop();
  http_.Join();
}

}  // namespace polykv
