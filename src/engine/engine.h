// The engine: one thread that owns all state and the backend. HTTP workers hand it commands and
// read snapshots; nobody else touches a pool, a session or a cell.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/commands.h"
#include "engine/snapshot.h"
#include "events/event_log.h"
#include "kv/model_backend.h"
#include "session/checkpoint_policy.h"

namespace polykv {

struct EngineConfig {
  int32_t n_parallel = 4;               // decode slots
  int32_t max_pools = 16;               // sequences kept for pools; 0: no pools
  int32_t max_sessions = 8;             // sequences kept for sessions; 0: none
  int32_t max_embeds = 0;               // prompts embedded in one batch; 0: no embeddings
  int32_t n_ctx_plain = 0;              // context that a plain request sees
  int32_t n_ctx_session = 0;            // context that sessions and pooled requests see
  float slot_prompt_similarity = 0.1F;  // llama-server's --slot-prompt-similarity
  bool context_shift = false;           // llama-server's --context-shift
  int64_t host_bytes = 0;               // cap of the host store; -1: none, 0: no host store
  bool save_idle_slots = false;         // idle slots' tokens go to the host store when one starts …
  bool clear_idle_slots = false;        // … and leave the cache
  CheckpointLimits checkpoints;         // of each sequence, where the model needs them
  int32_t prefill_chunk = 256;          // prompt tokens per step while others decode
  bool throttle = false;                // streams over their floor may skip steps for others
  // A share goes on for that long in a step while others decode, at least for a piece of it: at
  // 0.4 µs per cell no token is more than 5 ms late.
  TimeUs share_us = 3'000;
  int32_t share_piece = 4'096;        // cells
  int32_t first_stretch = 64;         // cells kept for the start of decoding when a request starts
  int32_t max_waiting = 512;          // waiting requests beyond that: 503
  int64_t grace_ms = 30'000;          // a pool without references lives on that long
  int64_t session_idle_ms = 600'000;  // a session unused for that long is forgotten
  int64_t session_hot_ms = 5'000;     // … and leaves the cache after that while others decode
  int64_t park_bytes = 512LL << 20;   // of host memory for parked requests; 0: none is parked
  AdapterSet adapters;                // for requests that name none, until SetAdapters
  std::function<void(const std::string& line)> log;  // for debugging; empty: none. Engine thread
  EventLog* event_log = nullptr;  // what happens goes there; outlives the engine. Null: nowhere
  PoolId boot_id = 1000;          // first pool id; a multiple of 1,000, random per boot

  // Two sequences behind those of the sessions that hold cells only while something is done; they
  // are there if pools are.
  int32_t n_scratch() const { return max_pools > 0 ? 2 : 0; }
  // The first of them; kNoSeq: there is none.
  SeqId scratch_seq() const {
    return n_scratch() > 0 ? n_parallel + max_pools + max_sessions : kNoSeq;
  }
  // n_seq_max that the backend must have: slots, pools, sessions, scratch, and one sequence per
  // prompt of an embedding batch.
  int32_t n_seq_max() const {
    return n_parallel + max_pools + max_sessions + n_scratch() + max_embeds;
  }
};

// Every public member is thread-safe unless it says otherwise.
class Engine {
 public:
  // `backend` and `clock` outlive the engine; `counters`: where an earlier engine's ended.
  // REQUIRES: config.n_seq_max() <= backend.info().n_seq_max.
  Engine(ModelBackend* backend, const Clock* clock, const EngineConfig& config,
         const Counters& counters = {});
  ~Engine();  // stops the thread; requests still open get a 503
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void Start();  // once

  // Hands a command over; its answer comes through the command's channel. Always answered, also
  // while draining (503) and at the end. Several are applied in their order before the same step.
  void Post(Command command);
  void Post(std::vector<Command> commands);

  // The newest picture; never null. An answer that a channel delivered is already in it.
  std::shared_ptr<const EngineSnapshot> Snapshot() const;

  // New work is refused with 503 from now on; open requests run on.
  void BeginDrain();
  // Ends what is still open with an error event, then the thread. Idempotent.
  void Stop();
  bool Idle() const;  // nothing running, waiting or materializing; no command that was not applied
  uint64_t n_steps() const;  // grows while there is work, unless a step hangs

  // Without Start, tests drive the loop by hand: applies all posted commands, runs at most one
  // model step. Returns false if there was nothing to compute.
  bool RunOneStep();
  // How many tokens every sequence holds that has any, by our account: the cells at the positions
  // [0, n). By hand only.
  std::map<SeqId, int32_t> Holdings() const;
  // Recounts cells, sequences and references from scratch and aborts if a count is off. By hand
  // only.
  void CheckIntegrity() const;

  const EngineConfig& config() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace polykv
