#pragma once

#include <compare>

#include "base/types.h"
#include "session/sequence.h"

namespace polykv {

// Sessions are told apart by it: equal ids of two tenants name two sessions.
struct SessionKey {
  TenantId tenant = kEverybody;
  SessionId id;

  auto operator<=>(const SessionKey&) const = default;
};

// A client's lasting conversation. It is known until it is ended or idle for too long, wherever its
// cells are; it holds no slot between turns. Engine thread only.
struct Session {
  SessionKey key;
  bool one_request = false;   // made for a request that named only a pool; ends with it
  PoolId pool_id = kNoPool;   // the pool that its latest request named
  Sequence sequence;          // id kNoSeq: its cells were given up
  bool cooled = false;        // since its latest request: cells went to the host store
  int64_t number = 0;         // of no two sessions the same
  bool admitted = false;      // a request of it has started: others are continuations
  PoolId governor = kNoPool;  // the pool whose policy counts its admission
  bool running = false;       // a request of it holds a slot
  int32_t n_waiting = 0;      // requests of it in the queue
  bool end_when_idle = false;
  TimeUs last_active = 0;
  TimeUs ttft_us = 0;  // of the latest request
};

}  // namespace polykv
