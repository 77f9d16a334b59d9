// Whether the model is loaded, and who needs it to stay so: a server that sleeps when idle unloads
// it and loads it again for the next request.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/result.h"

namespace polykv {

struct ModelGateConfig {
  TimeUs idle_us = -1;  // unloaded after so long without use; negative: never
  // Nothing goes on, and nothing is kept, that unloading would break. Short: others wait meanwhile.
  std::function<bool()> is_quiet;
  std::function<void()> unload;
  std::function<std::optional<Problem>()> load;
};

// Thread-safe where nothing else is said. Outlives what it hands out.
class ModelGate {
 public:
  // While a copy lives, a loaded model stays loaded, and an unloaded one is not unloaded anew.
  using Hold = std::shared_ptr<void>;

  // The model is loaded. The callbacks are never called at the same time.
  explicit ModelGate(ModelGateConfig config) : config_(std::move(config)) {}

  // For work with the model: loads it if it is not there, or waits until another thread has. A
  // Problem if it cannot be loaded, or is not to be any more. Counts as use.
  Result<Hold> Enter();

  struct Glance {
    Hold hold;
    bool loaded = false;
  };
  // For answers that the unloaded model must not keep back. Does not count as use.
  Glance Look();

  // Unloads if it is time to; one thread calls this again and again. `now` on one clock.
  void Poll(TimeUs now);

  // From now on the model is not loaded again. False while a thread still loads it: call again.
  bool Close();

 private:
  enum class State { kLoaded, kUnloaded, kLoading };

  Hold Take();  // REQUIRES: mutex_ is held

  const ModelGateConfig config_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  State state_ = State::kLoaded;
  int n_holds_ = 0;
  bool used_ = true;  // since the last Poll
  bool closed_ = false;
  TimeUs idle_since_ = 0;
};

}  // namespace polykv
