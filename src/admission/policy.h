// What a pool's owner asks of the server: a tokens-per-second floor, and what to do when it is
// reached.
#pragma once

#include <cstdint>
#include <optional>

namespace polykv {

struct AdmissionPolicy {
  enum class Mode { kAdvisory, kEnforced };
  enum class OnSaturation { kReject, kWarn, kQueue };

  double target_tps_per_session = 0;  // > 0
  Mode mode = Mode::kAdvisory;
  OnSaturation on_saturation = OnSaturation::kReject;
  int32_t guarantee_min_sessions = 1;  // so many are admitted whatever the floor says
  int32_t settle_tokens = 48;          // decoded tokens after which an admission has settled
  int64_t settle_max_ms = 5'000;       // … or that long after its first one
  std::optional<int32_t> max_queue = {};
  int64_t queue_timeout_ms = 30'000;
  std::optional<int32_t> max_tokens_per_request = {};  // generated ones
};

}  // namespace polykv
