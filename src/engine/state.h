// All that the engine knows, as one plain struct. Steps (steps/) are functions over it.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/adapter_turn.h"
#include "engine/commands.h"
#include "engine/engine.h"
#include "engine/governor.h"
#include "engine/host_store.h"
#include "engine/planner.h"
#include "engine/sequence_cache.h"
#include "engine/snapshot.h"
#include "events/event.h"
#include "meter/step_cost.h"
#include "meter/throughput.h"
#include "pool/pool_tree.h"
#include "pool/seq_allocator.h"
#include "session/generation.h"

namespace polykv {

// A decode seat. Plain requests work on its own sequence and leave their tokens there for the next.
struct Slot {
  int32_t id = 0;
  Sequence own;                   // id = the slot's, always
  Generation* running = nullptr;  // null: free
  TimeUs last_used = -1;          // of no two slots the same, but for -1: never
  SlotView last;                  // how the latest request left it, for /slots

  // Whether a request works on its own sequence; one of a session only takes the seat.
  bool in_use() const { return running != nullptr && running->sequence == &own; }
};

// A pool whose cells are being computed.
struct Materialization {
  struct Waiter {
    std::shared_ptr<Channel<Result<PoolCreated>>> channel;
    bool created;
  };
  std::shared_ptr<PoolNode> node;
  std::vector<Waiter> waiters;  // creators that hold a reference each and want an answer
  bool rebuild = false;         // of an evicted pool: a failure leaves it evicted, not gone
  bool wanted = false;          // goes on without waiters: answered already, or a rebuild
  bool begun = false;           // what others have of it is shared; false: it waits for its parent
  int32_t n_computed = 0;       // tokens computed so far
  std::string miss_reason;      // why the parent's cells are not shared; empty: they are
  TimeUs since = 0;
};

// One request for vectors. Its prompts are computed in order.
struct Embedding {
  SubmitEmbedding command;
  std::vector<PromptVectors> vectors;  // of the prompts that are done
  bool ended = false;                  // answered, or its client is gone
};

struct EngineState {
  EngineState(ModelBackend* model, const Clock* time, EngineConfig settings)
      : config(settings),
        backend(model),
        clock(time),
        adapters(settings.adapters),
        pools(settings.boot_id),
        cache(model, &pools, settings.scratch_seq()),
        host({.max_bytes = settings.host_bytes, .max_tokens = model->info().n_ctx}),
        pool_seqs(settings.n_parallel, settings.max_pools),
        session_seqs(settings.n_parallel + settings.max_pools, settings.max_sessions) {
    for (int32_t id = 0; id < settings.n_parallel; ++id) {
      Slot& slot = slots.emplace_back();
      slot.id = id;
      slot.own.id = id;
      slot.last.id = id;
      slot.last.n_ctx = settings.n_ctx_plain;
      slot.last.speculative = model->drafter() != nullptr;
    }
    embed_seats.resize(static_cast<size_t>(settings.max_embeds));
    for (int32_t i = 0; i < settings.max_embeds; ++i) {
      embed_seats[static_cast<size_t>(i)].id = settings.n_seq_max() - 1 - i;
    }
  }

  const EngineConfig config;
  ModelBackend* const backend;
  const Clock* const clock;

  AdapterSet adapters;  // for requests that name none, and for new pools
  AdapterTurn adapter_turn;
  PoolTree pools;
  Governors governors;
  SequenceCache cache;
  HostStore host;
  SeqAllocator pool_seqs;
  SeqAllocator session_seqs;
  std::vector<Slot> slots;   // never resized
  TimeUs slot_used_at = -1;  // the newest Slot::last_used
  std::map<SessionKey, std::shared_ptr<Session>> sessions;
  std::deque<std::unique_ptr<Generation>> waiting;   // in the order of arrival
  std::vector<std::unique_ptr<Generation>> running;  // oldest start first
  std::list<Materialization> materializing;
  std::list<Embedding> embeddings;    // in the order of arrival
  std::vector<Sequence> embed_seats;  // never resized; empty between steps, but for the first: it
                                      // may hold the begun prompt of the first embedding

  std::deque<ChangeSlot> slot_changes;  // that wait for their slot

  int64_t next_task_id = 0;
  uint64_t next_session_number = 1;
  bool draining = false;
  Counters counters;
  Throughput throughput;  // decoded tokens, each stream's first one left out
  double prefill_us_per_token =
      3'000;  // measured; the start is a guess that the first steps correct
  StepCostMeter step_cost;
  PrefillDues prefill_dues;      // of prompts and pools
  PrefillDues embed_dues;        // of embeddings
  TimeUs under_floor_since = 0;  // with config.throttle: since then a stream is under its floor

  StepBatch batch;                     // of the step; kept for its storage
  std::vector<SampleJob> sample_jobs;  // likewise
  bool out_of_room = false;            // the model found no cells although the count said so
  bool model_full = false;             // and nobody starts until a running request has ended
  int64_t parked_bytes = 0;            // of all parked requests

  // Answers of this step; they go out after the snapshot that shows them.
  std::vector<std::pair<std::shared_ptr<GenerationChannel>, GenerationMessage>> events;
  std::vector<std::function<void()>> answers;  // to other commands; each is to be called once
  std::vector<Event> recorded;                 // since the snapshot; for the event log
  bool changed = true;                         // something that status routes should show at once

  TimeUs now() const { return clock->NowUs(); }
  void Log(const std::string& line) const {
    if (config.log) config.log(line);
  }
  void Record(Event event) {
    if (config.event_log == nullptr) return;
    event.at = now();
    recorded.push_back(std::move(event));
    changed = true;
  }
  int32_t n_waiting() const { return static_cast<int32_t>(waiting.size() + embeddings.size()); }
  void Emit(const Generation& generation, GenerationEvent event) {
    const GenerationRequest& request = *generation.request;
    events.emplace_back(request.channel, GenerationMessage{request.index, std::move(event)});
  }
  template <typename T>
  void Answer(std::shared_ptr<Channel<T>> channel, std::type_identity_t<T> answer) {
    answers.push_back([channel = std::move(channel), answer = std::move(answer)]() mutable {
      channel->Push(std::move(answer));
    });
  }
};

}  // namespace polykv
