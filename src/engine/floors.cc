#include "engine/floors.h"

#include <algorithm>

#include "engine/load.h"

namespace polykv {
namespace {

constexpr int64_t kCopyBytesPerUs = 500;  // a slow machine's

}  // namespace

double FloorOf(const EngineState& state, const Generation& generation) {
  if (state.governors.empty() || generation.session == nullptr) return 0;
  const PoolNode* const governor = GoverningPoolOrNull(state, generation.session->pool_id);
  return governor != nullptr ? state.governors.at(governor->id).policy.target_tps_per_session : 0;
}

bool IsOutside(const EngineState& state, PoolId pool) {
  return !state.governors.empty() && GoverningPoolOrNull(state, pool) == nullptr;
}

std::optional<StepRoom> RoomBeside(const EngineState& state, const StepShape& decode,
                                   const PrefillDues& dues) {
  if (state.governors.empty()) return std::nullopt;
  std::optional<StepRoom> room;
  const TimeUs now = state.now();
  for (const auto& generation : state.running) {
    if (generation->phase != Generation::Phase::kDecode) continue;
    const double floor = FloorOf(state, *generation);
    if (floor <= 0) continue;
    const TimeUs since = now - generation->timings.t_last;
    const TimeUs until_due = generation->pace.MaxGap(floor) - since;
    const TimeUs until_longest = Pace::LongestGap(floor) - since;
    if (!room) room = {.now = until_due, .full = until_longest};
    room->now = std::min(room->now, until_due);
    room->full = std::min(room->full, until_longest);
  }
  if (!room) return std::nullopt;
  room->owed = dues.owed();
  room->decode = decode;
  room->may_wait = decode.n_decode > 0;
  room->cost = state.step_cost.cost();
  room->margin = state.step_cost.Margin(/*with_prompt=*/true);
  return room;
}

std::optional<StepRoom> RoomBetween(const EngineState& state, const PrefillDues& dues) {
  std::optional<StepRoom> room = RoomBeside(state, {}, dues);
  if (!room) return std::nullopt;
  StepShape next;
  for (const auto& generation : state.running) {
    if (generation->phase != Generation::Phase::kDecode) continue;
    next.AddDecode(static_cast<int32_t>(generation->next.size()), generation->n_tokens());
  }
  const auto next_us = static_cast<TimeUs>(state.step_cost.AtMost(next));
  room->may_wait = true;
  room->now -= next_us;
  room->full -= next_us;
  return room;
}

void NoteStep(EngineState& state, const StepShape& shape, const StepShape& decode, TimeUs us) {
  state.step_cost.Add(shape, us);
  const auto decode_us = static_cast<TimeUs>(state.step_cost.cost().Predict(decode));
  state.prefill_dues.Add(us, shape.n_prefill > 0 ? std::max<TimeUs>(0, us - decode_us) : 0);
  state.embed_dues.Add(us, 0);
  if (state.embeddings.empty()) state.embed_dues.Reset();
}

void NoteEmbedStep(EngineState& state, const StepShape& shape, TimeUs us) {
  state.step_cost.Add(shape, us);
  state.prefill_dues.Add(us, 0);
  state.embed_dues.Add(us, us);
}

bool MayCopy(const EngineState& state, int64_t n_bytes) {
  const std::optional<StepRoom> room = RoomBetween(state, {});
  return !room || n_bytes / kCopyBytesPerUs <= room->now;
}

}  // namespace polykv
