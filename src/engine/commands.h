// What HTTP workers ask of the engine thread. Each command carries the channel its answer goes to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "admission/judge.h"
#include "admission/policy.h"
#include "base/channel.h"
#include "base/result.h"
#include "session/request.h"

namespace polykv {

struct SubmitGeneration {
  std::unique_ptr<GenerationRequest> request;
};

struct PoolCreated {
  PoolId pool_id = kNoPool;
  std::string name;
  PoolId parent = kNoPool;
  int32_t branch_pos = 0;
  int32_t shared_len = 0;
  int32_t prefix_len = 0;
  uint64_t prefix_hash = 0;
  int64_t own_kv_bytes = 0;
  bool created = false;     // false: an equal pool was there or on its way
  bool ready = false;       // false: still materializing (wait = false)
  int32_t n_prefilled = 0;  // tokens computed for it
  double prefill_ms = 0;
  std::string miss_reason;  // why it does not share [0, branch_pos); empty: it does
};
// A root, or with `parent` a fork.
struct CreatePool {
  TenantId tenant = kEverybody;            // whose pool it will be; of its parent and session too
  std::string parent;                      // decimal id or name; empty: a root
  std::optional<int32_t> branch_pos = {};  // none: where tokens and parent part, or, if they are
                                           // appended, the parent's length
  std::vector<Token> tokens;  // the whole prefix, every token in [0, n_vocab); not empty unless
                              // from_session or append
  bool append = false;        // `tokens` follow the parent's first branch_pos ones
  SessionId from_session;     // not empty: what this session holds, in place of `tokens`
  std::string name;           // empty: none
  bool pin = false;
  bool unique = false;  // never return an equal pool
  bool wait = true;     // answer when the cells are there
  std::shared_ptr<Channel<Result<PoolCreated>>> channel =
      std::make_shared<Channel<Result<PoolCreated>>>();
};

struct PoolStatus {
  PoolId pool_id = kNoPool;
  int32_t refs = 0;
  bool pinned = false;
  int32_t n_evicted = 0;                      // pools whose cells were dropped
  bool released = false;                      // gone, or going after `release_in_ms`
  std::optional<int64_t> release_in_ms = {};  // set while the grace runs
};
struct ChangePool {
  enum class Action {
    kPin,
    kUnpin,
    kEvict,    // drops the cells, keeps the tokens
    kFlush,    // the same for every pool of the subtree that is neither pinned nor in use
    kRelease,  // drops one reference
  };
  TenantId tenant = kEverybody;
  Action action = Action::kPin;
  std::string pool;                    // decimal id or name
  std::string pin_key = {};            // kPin, kUnpin: pins of other keys stay as they are
  std::optional<int64_t> ttl_ms = {};  // kPin: unpin by itself after that
  bool subtree = false;                // kRelease: of every pool below it too, leaves first
  bool force = false;                  // kRelease: no grace
  std::shared_ptr<Channel<Result<PoolStatus>>> channel =
      std::make_shared<Channel<Result<PoolStatus>>>();
};

// Sets or takes away (`policy` empty) a pool's own admission policy.
struct SetAdmission {
  TenantId tenant = kEverybody;
  std::string pool;  // decimal id or name
  std::optional<AdmissionPolicy> policy;
  std::shared_ptr<Channel<Result<PoolId>>> channel = std::make_shared<Channel<Result<PoolId>>>();
};

// What the gate would say of one more session.
struct Capacity {
  Verdict verdict;
  PoolId governed_by = kNoPool;  // the pool whose policy applies; none: no policy
  GovernedLoad governed;
  ServerLoad server;
  Forecast forecast;
  int32_t n_queued = 0;                          // requests of governed pools that the gate holds
  std::optional<int32_t> streams_total = {};     // of a split cache …
  std::optional<int32_t> cells_per_stream = {};  // … and what each has
};
struct AskCapacity {
  TenantId tenant = kEverybody;
  std::string pool;                             // decimal id or name
  std::optional<int64_t> expected_tokens = {};  // that the session would need
  SessionId session_id;                         // empty: a new one
  std::shared_ptr<Channel<Result<Capacity>>> channel =
      std::make_shared<Channel<Result<Capacity>>>();
};

struct ReadPoolTokens {
  TenantId tenant = kEverybody;
  std::string pool;                // decimal id or name
  std::optional<int32_t> n_first;  // none: all; more than there are: all
  std::shared_ptr<Channel<Result<std::vector<Token>>>> channel =
      std::make_shared<Channel<Result<std::vector<Token>>>>();
};

struct EndSessions {
  TenantId tenant = kEverybody;
  SessionId session_id = {};  // empty: all of the tenant's
  std::shared_ptr<Channel<Result<int32_t>>> channel =
      std::make_shared<Channel<Result<int32_t>>>();  // number of sessions ended
};

struct SlotChanged {
  int32_t n_tokens = 0;  // saved, restored or erased
  int64_t n_bytes = 0;   // of the file
  double ms = 0;
};
// Waits until the slot is free. A tenant other than kEverybody finds nothing in a slot but what it
// computed itself.
struct ChangeSlot {
  enum class Action { kSave, kRestore, kErase };
  TenantId tenant = kEverybody;
  Action action = Action::kErase;
  int32_t id_slot = 0;  // wraps around, as in llama-server
  std::string path;     // of the file; not for kErase
  std::shared_ptr<Channel<Result<SlotChanged>>> channel =
      std::make_shared<Channel<Result<SlotChanged>>>();
};

// Requests that start from now on and name no adapters compute with these, and new pools.
struct SetAdapters {
  AdapterSet adapters;
  std::shared_ptr<Channel<Result<AdapterSet>>> channel =
      std::make_shared<Channel<Result<AdapterSet>>>();  // the same set, when it holds
};

// Ends the thinking of a completion that holds a slot; with several choices, of one of them.
struct EndReasoning {
  enum class Outcome { kDone, kNoCompletion, kNotAsked };  // kNotAsked: no reasoning_control
  TenantId tenant = kEverybody;
  std::string completion_id;
  std::shared_ptr<Channel<Result<Outcome>>> channel = std::make_shared<Channel<Result<Outcome>>>();
};

using PromptVectors = std::vector<std::vector<float>>;  // one if ModelInfo::pooled, else per token
struct SubmitEmbedding {
  std::vector<std::vector<Token>> prompts;  // not empty, none is; every token in [0, n_vocab)
  std::shared_ptr<Channel<Result<std::vector<PromptVectors>>>> channel =
      std::make_shared<Channel<Result<std::vector<PromptVectors>>>>();  // in the prompts' order
};

using Command =
    std::variant<SubmitGeneration, SubmitEmbedding, CreatePool, ChangePool, ReadPoolTokens,
                 SetAdmission, AskCapacity, EndSessions, ChangeSlot, SetAdapters, EndReasoning>;

}  // namespace polykv
