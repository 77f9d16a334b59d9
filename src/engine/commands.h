// What HTTP workers ask of the engine thread. Each command carries the channel its answer goes to.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

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
  int32_t prefix_len = 0;
  uint64_t prefix_hash = 0;
  int64_t own_kv_bytes = 0;
  bool created = false;  // false: an equal pool was there or on its way
  bool ready = false;    // false: still materializing (wait = false)
  int32_t n_prefilled = 0;
  double prefill_ms = 0;
};
struct CreatePool {
  std::vector<Token> tokens;  // every token in [0, n_vocab); not empty
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
  bool released = false;                      // gone, or going after `release_in_ms`
  std::optional<int64_t> release_in_ms = {};  // set while the grace runs
};
struct ChangePool {
  enum class Action { kPin, kUnpin, kRelease };
  Action action = Action::kPin;
  std::string pool;                    // decimal id or name
  std::optional<int64_t> ttl_ms = {};  // kPin: unpin by itself after that
  bool force = false;                  // kRelease: no grace
  std::shared_ptr<Channel<Result<PoolStatus>>> channel =
      std::make_shared<Channel<Result<PoolStatus>>>();
};

struct EndSessions {
  SessionId session_id;  // empty: all
  std::shared_ptr<Channel<Result<int32_t>>> channel =
      std::make_shared<Channel<Result<int32_t>>>();  // number of sessions ended
};

struct SlotChanged {
  int32_t n_tokens = 0;  // saved, restored or erased
  int64_t n_bytes = 0;   // of the file
  double ms = 0;
};
// Waits until the slot is free.
struct ChangeSlot {
  enum class Action { kSave, kRestore, kErase };
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
  std::string completion_id;
  std::shared_ptr<Channel<Result<Outcome>>> channel = std::make_shared<Channel<Result<Outcome>>>();
};

using PromptVectors = std::vector<std::vector<float>>;  // one if ModelInfo::pooled, else per token
struct SubmitEmbedding {
  std::vector<std::vector<Token>> prompts;  // not empty, none is; every token in [0, n_vocab)
  std::shared_ptr<Channel<Result<std::vector<PromptVectors>>>> channel =
      std::make_shared<Channel<Result<std::vector<PromptVectors>>>>();  // in the prompts' order
};

using Command = std::variant<SubmitGeneration, SubmitEmbedding, CreatePool, ChangePool, EndSessions,
                             ChangeSlot, SetAdapters, EndReasoning>;

}  // namespace polykv
