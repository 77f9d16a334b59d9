#include "engine/throttle.h"

#include <algorithm>

namespace polykv {
namespace {

constexpr uint64_t kTurns = 4;           // of them an outside stream has one
constexpr double kOver = 1.25;           // times its floor (spec §6)
constexpr TimeUs kPatience = 2'000'000;  // then the rates show what throttling has brought

bool Outside(const StreamRate& stream) { return stream.floor_tps <= 0; }

}  // namespace

bool AnyUnderFloor(std::span<const StreamRate> streams) {
  return std::any_of(streams.begin(), streams.end(), [](const StreamRate& stream) {
    return stream.tps > 0 && stream.tps < stream.floor_tps;
  });
}

std::vector<bool> PlanThrottle(std::span<const StreamRate> streams, uint64_t step,
                               TimeUs under_for) {
  std::vector<bool> skips(streams.size());
  if (!AnyUnderFloor(streams)) return skips;
  const bool sessions_too =
      under_for >= kPatience || std::none_of(streams.begin(), streams.end(), Outside);
  for (size_t i = 0; i < streams.size(); ++i) {
    const StreamRate& stream = streams[i];
    if (Outside(stream)) {
      skips[i] = (step + static_cast<uint64_t>(stream.slot_id)) % kTurns != 0;
    } else {
      skips[i] = sessions_too && stream.tps > kOver * stream.floor_tps;
    }
  }
  return skips;
}

}  // namespace polykv
