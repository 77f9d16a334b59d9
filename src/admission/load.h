// The picture of the load that verdicts are made of.
#pragma once

#include <cstdint>
#include <optional>

namespace polykv {

// The sessions that one policy governs: those of its pool and of descendants without their own.
struct GovernedLoad {
  int32_t n_attached = 0;  // running, queued, parked, or active within the last 30 s
  int32_t n_running = 0;   // of the attached ones; the others wait or pause
  int32_t n_idle = 0;      // known, but not attached
  int32_t n_warming = 0;   // decoding, without a settled rate yet
  double mean_tps = 0;     // experienced, over those that decode and are not warming; 0: none
  double mean_private_cells = 0;  // of their private suffixes; 0: nothing is known
};

// The whole server.
struct ServerLoad {
  int32_t n_decoding = 0;  // sessions and plain requests with a settled rate
  int32_t n_running = 0;   // of all that hold a slot
  int32_t cells_total = 0;
  int32_t cells_available = 0;               // free, or to be had without harming a running request
  double largest_share = 0;                  // of its context that the fullest session uses, [0, 1]
  int32_t seq_ids_free = 0;                  // or to be had
  std::optional<int32_t> streams_free = {};  // of a split cache
};

}  // namespace polykv
