// llama-server's own series of GET /metrics.
#pragma once

#include <mutex>
#include <string>

#include "engine/snapshot.h"

namespace polykv {

// Thread-safe. The two throughput gauges cover the time since the previous call, as llama-server's
// do; everything else counts from the start.
class ServerMetrics {
 public:
  std::string Text(const EngineSnapshot& snapshot);

 private:
  std::mutex mutex_;
  Counters previous_;  // guarded by mutex_
};

}  // namespace polykv
