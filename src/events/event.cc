#include "events/event.h"

namespace polykv {

std::string_view EventName(EventKind kind) {
  switch (kind) {
    case EventKind::kPoolCreated:
      return "pool_created";
    case EventKind::kPoolForked:
      return "pool_forked";
    case EventKind::kPoolSealed:
      return "pool_sealed";
    case EventKind::kPoolRebuilt:
      return "pool_rebuilt";
    case EventKind::kPoolFailed:
      return "pool_failed";
    case EventKind::kPoolEvicted:
      return "pool_evicted";
    case EventKind::kPoolPinned:
      return "pool_pinned";
    case EventKind::kPoolUnpinned:
      return "pool_unpinned";
    case EventKind::kPoolReleased:
      return "pool_released";
    case EventKind::kPolicyChanged:
      return "policy_changed";
    case EventKind::kFloorBroken:
      return "floor_broken";
    case EventKind::kFloorHeld:
      return "floor_held";
    case EventKind::kSessionBegun:
      return "session_begun";
    case EventKind::kSessionAttached:
      return "session_attached";
    case EventKind::kSessionParked:
      return "session_parked";
    case EventKind::kSessionResumed:
      return "session_resumed";
    case EventKind::kSessionFinished:
      return "session_finished";
    case EventKind::kSessionFailed:
      return "session_failed";
    case EventKind::kSessionCancelled:
      return "session_cancelled";
    case EventKind::kSessionEnded:
      return "session_ended";
    case EventKind::kAdmission:
      return "admission";
    case EventKind::kSettleBegun:
      return "settle_begun";
    case EventKind::kSettleEnded:
      return "settle_ended";
    case EventKind::kKvPressure:
      return "kv_pressure";
    case EventKind::kDraining:
      return "draining";
  }
  return "";
}

}  // namespace polykv
