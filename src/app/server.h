// The composition root: everything of one server, in the order in which it comes up and goes down.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/http_server.h"
#include "api/model_gate.h"
#include "api/predict_routes.h"
#include "api/protocol/served_model.h"
#include "api/protocol/server_params.h"
#include "api/protocol/server_tools.h"
#include "api/services.h"
#include "api/stream_store.h"
#include "app/layout.h"
#include "app/options.h"
#include "app/signal_pipe.h"
#include "attention/ggml/attention_operator.h"
#include "base/clock.h"
#include "base/watchdog.h"
#include "engine/engine.h"
#include "events/event_log.h"
#include "llama/llama_backend.h"

namespace polykv {

class Server {
 public:
  Server(const ServerParams& params, const Options& options, std::optional<PredictConfig> predict);

  // Listens (answering 503), loads the model, starts the engine. A Problem is one line for a
  // person; the server is of no use then.
  std::optional<Problem> Boot();

  // What is served where and with which limits, in a few lines. REQUIRES: Boot succeeded.
  std::string Banner() const;

  // Becomes ready and serves until a signal, then lets open requests end (--polykv-drain-ms) and
  // stops. A second signal ends the process at once, with 1. REQUIRES: Boot succeeded.
  void Run(SignalPipe* signals);

 private:
  // Each for the gate, and Load at boot: what is loaded goes and comes as one.
  bool IsQuiet() const;  // no request is open and nobody has a pool or a session
  void Unload();
  std::optional<Problem> Load();

  std::optional<Problem> LoadModel();
  std::optional<Problem> StartEngine();
  void FreeModel();
  void LookAtProgress();
  void Drain(SignalPipe* signals);
  void ChooseAttention();
  AttentionCounts CountAttention() const;
  std::string PropsJson() const;

  const ServerParams params_;
  const Options options_;
  const std::optional<PredictConfig> predict_;
  bool own_matmul_ = false;  // Q4_1 products run on our kernel
  AttentionSwitch* const attention_;
  LayoutRequest layout_;  // constant after Boot
  EngineConfig config_;
  SteadyClock clock_;
  EventLog events_;  // outlives the engine, which tells it of its end
  std::unique_ptr<LlamaBackend> backend_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<Engine> engine_;
  StreamStore streams_;
  std::unique_ptr<ServerTools> tools_;
  Watchdog watchdog_;
  Services services_;
  ModelGate gate_;
  HttpServer http_;  // goes down first: its handlers use all of the above
  std::vector<std::string> addresses_;
};

}  // namespace polykv
