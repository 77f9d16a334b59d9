// The engine's snapshot as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "api/http_server.h"
#include "api/protocol/json.h"
#include "api/wall_clock.h"
#include "engine/snapshot.h"

namespace polykv {

// `*_ts` are Unix milliseconds; rates and times that are not settled are null.
Json PoolJson(const PoolView& pool, const EngineSnapshot& snapshot, const WallClock& wall);
Json SessionJson(const SessionView& session, const WallClock& wall);
Json SlotJson(const SlotView& slot, TimeUs now);

// The document of GET /polykv/tps; the sums are over all sessions.
Json TpsJson(const EngineSnapshot& snapshot, const Caller& caller, const WallClock& wall);
Json PolicyJson(const AdmissionPolicy& policy);

// Of those that the caller sees, by decimal id or by name; null if there is none.
const PoolView* FindPoolOrNull(const EngineSnapshot& snapshot, const Caller& caller,
                               const std::string& id_or_name);

// What another tenant may know of a slot: that it is there, and whether it is taken.
SlotView Redacted(const SlotView& slot);

// 16 hexadecimal digits: JSON numbers do not hold 64 bits everywhere.
std::string PrefixHashText(uint64_t hash);

// What stands above the list of pools.
Json PoolTreeHead(const EngineSnapshot& snapshot);
// The head and the pools that the caller sees: the document of GET /polykv/pools.
Json PoolTreeJson(const EngineSnapshot& snapshot, const Caller& caller, const WallClock& wall);

}  // namespace polykv
