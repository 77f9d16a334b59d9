#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "engine/build_snapshot.h"
#include "engine/state.h"
#include "engine/steps/admit.h"
#include "engine/steps/change_pool.h"
#include "engine/steps/create_pool.h"
#include "engine/steps/decode.h"
#include "engine/steps/embed.h"
#include "engine/steps/gate.h"
#include "engine/steps/idle_tier.h"
#include "engine/steps/materialize.h"
#include "engine/steps/park.h"
#include "engine/steps/retire.h"
#include "engine/steps/slot_change.h"

namespace polykv {
namespace {

constexpr TimeUs kReapUs = 100'000;  // expiry is looked for that often
constexpr std::chrono::milliseconds kIdleWait{100};

const Problem kStopped{.status = 503,
                       .type = "unavailable_error",
                       .message = "the server is shutting down",
                       .retry_after_s = 5};

// One visitor per kind of command.
struct Apply {
  EngineState& state;

  void operator()(SubmitGeneration& command) const { Enqueue(state, std::move(command.request)); }
  void operator()(SubmitEmbedding& command) const { Enqueue(state, std::move(command)); }
  void operator()(CreatePool& command) const {
    if (state.draining) {
      state.Answer(command.channel, kStopped);
    } else {
      HandleCreatePool(state, std::move(command));
    }
  }
  void operator()(ChangePool& command) const { HandleChangePool(state, command); }
  void operator()(ReadPoolTokens& command) const {
    const auto node = state.pools.FindOrNull(command.tenant, command.pool);
    if (node == nullptr) return state.Answer(command.channel, PoolNotFound(command.pool));
    const Pos n = std::clamp(command.n_first.value_or(node->length()), 0, node->length());
    const auto begin = node->prefix.tokens.begin();
    state.Answer(command.channel, std::vector<Token>(begin, begin + n));
  }
  void operator()(SetAdmission& command) const { HandleSetAdmission(state, command); }
  void operator()(AskCapacity& command) const { HandleAskCapacity(state, command); }
  void operator()(ChangeSlot& command) const { state.slot_changes.push_back(std::move(command)); }
  void operator()(SetAdapters& command) const {
    state.adapters = command.adapters;
    state.Answer(command.channel, std::move(command.adapters));
    state.changed = true;
  }
  void operator()(EndSessions& command) const {
    std::vector<SessionKey> keys;
    if (!command.session_id.empty()) {
      keys.push_back({command.tenant, command.session_id});
    } else {
      for (const auto& [key, session] : state.sessions) {
        if (key.tenant == command.tenant) keys.push_back(key);
      }
    }
    int32_t n_ended = 0;
    for (const SessionKey& key : keys) n_ended += EndSession(state, key) ? 1 : 0;
    Result<int32_t> answer = n_ended;
    if (!command.session_id.empty() && n_ended == 0) {
      answer = Problem{.status = 404,
                       .type = "session_not_found",
                       .message = "there is no session " + command.session_id};
    }
    state.Answer(command.channel, std::move(answer));
    state.changed = true;
  }
  void operator()(EndReasoning& command) const {
    EndReasoning::Outcome outcome = EndReasoning::Outcome::kNoCompletion;
    for (const Slot& slot : state.slots) {
      if (slot.running == nullptr) continue;
      GenerationRequest& request = *slot.running->request;
      const bool is_meant =
          request.tenant == command.tenant && request.completion_id == command.completion_id;
      if (!is_meant) continue;
      outcome = request.reasoning_control ? EndReasoning::Outcome::kDone
                                          : EndReasoning::Outcome::kNotAsked;
      if (request.reasoning_control) request.sampler->EndReasoning();
      break;
    }
    state.Answer(command.channel, outcome);
  }
};

// The answer to a command that comes when the engine is gone.
struct Refuse {
  void operator()(SubmitGeneration& command) const {
    const GenerationRequest& request = *command.request;
    request.channel->Push({request.index, kStopped});
    for (const auto& choice : request.choices) choice->channel->Push({choice->index, kStopped});
  }
  template <typename Other>
  void operator()(Other& command) const {
    command.channel->Push(kStopped);
  }
};

}  // namespace

class Engine::Impl {
 public:
  Impl(ModelBackend* backend, const Clock* clock, const EngineConfig& config,
       const Counters& counters)
      : state_(backend, clock, config) {
    state_.counters = counters;
    POLYKV_CHECK(config.n_seq_max() <= backend->info().n_seq_max);
    POLYKV_CHECK(config.n_parallel > 0 && config.n_parallel <= backend->info().n_batch);
    Publish();
  }

  ~Impl() { Stop(); }

  void Start() {
    POLYKV_CHECK(!thread_.joinable());
    thread_ = std::thread([this] { Loop(); });
  }

  void Post(std::vector<Command> commands) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!stopped_) {
        std::move(commands.begin(), commands.end(), std::back_inserter(commands_));
        busy_.store(true);
        wake_.notify_one();
        return;
      }
    }
    for (Command& command : commands) std::visit(Refuse{}, command);
  }

  std::shared_ptr<const EngineSnapshot> Snapshot() const {
    const std::lock_guard<std::mutex> lock(snapshot_mutex_);
    return snapshot_;
  }

  void BeginDrain() {
    draining_.store(true);
    wake_.notify_one();
  }

  bool Idle() const { return !busy_.load(); }
  uint64_t n_steps() const { return n_steps_.load(std::memory_order_relaxed); }

  bool RunOneStep() {
    const bool computed = Step();
    Publish();
    FlushAnswers();
    return computed;
  }

  void CheckIntegrity() const {
    state_.pools.CheckIntegrity();
    CheckHostMemory();
    int32_t cells = 0;
    int32_t n_session_seqs = 0;
    for (const Slot& slot : state_.slots) {
      cells += slot.own.n_private();
      POLYKV_CHECK(PoolTree::MayHold(slot.own.origin, slot.own.lease));
    }
    for (const auto& [key, session] : state_.sessions) {
      cells += session->sequence.n_private();
      POLYKV_CHECK(PoolTree::MayHold(session->sequence.origin, session->sequence.lease));
      n_session_seqs += session->sequence.id != kNoSeq ? 1 : 0;
      POLYKV_CHECK(key == session->key && session->n_waiting >= 0);
    }
    for (const Sequence& seat : state_.embed_seats) {
      cells += seat.n_private();
      POLYKV_CHECK(seat.tokens.empty() || &seat == state_.embed_seats.data());
    }
    int32_t n_pool_seqs = 0;
    for (const auto& [id, node] : state_.pools.nodes()) n_pool_seqs += node->seq != kNoSeq ? 1 : 0;
    POLYKV_CHECK(cells == state_.cache.private_cells());
    POLYKV_CHECK(n_session_seqs == state_.session_seqs.n_used());
    POLYKV_CHECK(n_pool_seqs == state_.pool_seqs.n_used());
    POLYKV_CHECK(state_.cache.used() <= state_.cache.total());
    for (const auto& generation : state_.running) {
      const Slot& slot = state_.slots[static_cast<size_t>(generation->slot_id)];
      POLYKV_CHECK(slot.running == generation.get());
    }
  }

  std::map<SeqId, int32_t> Holdings() const {
    std::map<SeqId, int32_t> holdings;
    const auto add = [&](SeqId seq, int32_t n_tokens) {
      const int32_t n_arrived = state_.cache.shares().Arrived(seq, n_tokens);
      if (n_arrived > 0) POLYKV_CHECK(holdings.emplace(seq, n_arrived).second);
    };
    for (const Slot& slot : state_.slots) add(slot.own.id, slot.own.n_tokens());
    for (const auto& [id, session] : state_.sessions) {
      add(session->sequence.id, session->sequence.n_tokens());
    }
    for (const auto& [id, node] : state_.pools.nodes()) add(node->seq, node->n_materialized);
    for (const Sequence& seat : state_.embed_seats) add(seat.id, seat.n_tokens());
    return holdings;
  }

  // What sequences hold outside of the cache, and that nothing was left on the way there.
  void CheckHostMemory() const {
    state_.host.CheckIntegrity([this](HostKind kind, int64_t owner) {
      if (kind == HostKind::kPool) return state_.pools.FindOrNull(owner) != nullptr;
      return std::any_of(state_.sessions.begin(), state_.sessions.end(),
                         [owner](const auto& entry) {
                           return entry.second->number == owner && !entry.second->running;
                         });
    });
    int64_t parked_bytes = 0;
    for (const auto& generation : state_.running) {
      const bool parked = generation->phase == Generation::Phase::kParked;
      POLYKV_CHECK(parked == generation->parked.has_value());
      if (parked) parked_bytes += generation->parked->n_bytes();
    }
    POLYKV_CHECK(parked_bytes == state_.parked_bytes);
    POLYKV_CHECK(parked_bytes <= state_.config.park_bytes);
    for (int32_t i = 0; i < state_.config.n_scratch(); ++i) {
      POLYKV_CHECK(state_.backend->MinPos(state_.config.scratch_seq() + i) == -1);
    }
  }

  void Stop() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) return;
      stopped_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
    EndAll();
  }

  const EngineConfig& config() const { return state_.config; }

 private:
  void Loop() {
    while (true) {
      const bool computed = Step();
      if (state_.changed || !computed || state_.now() - published_at_ >= kSnapshotUs) Publish();
      FlushAnswers();
      std::unique_lock<std::mutex> lock(mutex_);
      if (stopped_) return;
      if (computed || !commands_.empty()) continue;
#ifndef NDEBUG
      CheckIntegrity();
#endif
      wake_.wait_for(lock, kIdleWait, [this] { return stopped_ || !commands_.empty(); });
    }
  }

  bool Step() {
    std::vector<Command> commands;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      commands.swap(commands_);
    }
    if (draining_.load() && !std::exchange(state_.draining, true)) {
      state_.Record({.kind = EventKind::kDraining});
    }
    for (Command& command : commands) std::visit(Apply{state_}, command);
    ReapAbandoned(state_);
    if (state_.now() - reaped_at_ >= kReapUs) {
      reaped_at_ = state_.now();
      ReapExpired(state_);
      CoolIdle(state_);
    }
    ResumeParked(state_);
    SettleAdmissions(state_);
    ChangeFreeSlots(state_);
    StartWaiting(state_);
    const bool decoded = RunModelStep(state_);
    const bool embedded = RunEmbedStep(state_);
    n_steps_.fetch_add(1, std::memory_order_relaxed);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      busy_.store(!commands_.empty() || !state_.running.empty() || state_.n_waiting() > 0 ||
                  !state_.materializing.empty());
    }
    return decoded || embedded;
  }

  void Publish() {
    auto snapshot = BuildSnapshot(state_, ++version_);
    published_at_ = state_.now();
    state_.changed = false;
    {
      const std::lock_guard<std::mutex> lock(snapshot_mutex_);
      snapshot_.swap(snapshot);
    }
    if (!state_.recorded.empty()) {
      state_.config.event_log->Append(std::exchange(state_.recorded, {}));
    }
  }

  void FlushAnswers() {
    for (auto& [channel, message] : state_.events) channel->Push(std::move(message));
    state_.events.clear();
    for (const auto& answer : state_.answers) answer();
    state_.answers.clear();
  }

  // Everybody who still waits gets an answer.
  void EndAll() {
    for (Command& command : commands_) std::visit(Refuse{}, command);
    commands_.clear();
    for (const auto& generation : state_.waiting) Fail(state_, *generation, kStopped);
    for (const auto& generation : state_.running) Fail(state_, *generation, kStopped);
    SweepEnded(state_);
    for (const ChangeSlot& change : state_.slot_changes) change.channel->Push(kStopped);
    state_.slot_changes.clear();
    for (Embedding& embedding : state_.embeddings) Fail(state_, embedding, kStopped);
    SweepEmbeddings(state_);
    while (!state_.materializing.empty())
      FailPool(state_, state_.materializing.front().node, kStopped);
    Publish();
    FlushAnswers();
  }

  EngineState state_;  // engine thread only; before Start and after Stop the caller's
  TimeUs published_at_ = 0;
  TimeUs reaped_at_ = 0;
  uint64_t version_ = 0;

  std::atomic<bool> draining_{false};
  std::atomic<bool> busy_{false};  // written under mutex_
  std::atomic<uint64_t> n_steps_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Command> commands_;  // guarded by mutex_
  bool stopped_ = false;           // guarded by mutex_

  mutable std::mutex snapshot_mutex_;
  std::shared_ptr<const EngineSnapshot> snapshot_;  // guarded by snapshot_mutex_; never null

  std::thread thread_;
};

Engine::Engine(ModelBackend* backend, const Clock* clock, const EngineConfig& config,
               const Counters& counters)
    : impl_(std::make_unique<Impl>(backend, clock, config, counters)) {}
Engine::~Engine() = default;
void Engine::Start() { impl_->Start(); }
void Engine::Post(Command command) {
  std::vector<Command> commands;
  commands.push_back(std::move(command));
  Post(std::move(commands));
}
void Engine::Post(std::vector<Command> commands) { impl_->Post(std::move(commands)); }
std::shared_ptr<const EngineSnapshot> Engine::Snapshot() const { return impl_->Snapshot(); }
void Engine::BeginDrain() { impl_->BeginDrain(); }
void Engine::Stop() { impl_->Stop(); }
bool Engine::Idle() const { return impl_->Idle(); }
uint64_t Engine::n_steps() const { return impl_->n_steps(); }
bool Engine::RunOneStep() { return impl_->RunOneStep(); }
std::map<SeqId, int32_t> Engine::Holdings() const { return impl_->Holdings(); }
void Engine::CheckIntegrity() const { impl_->CheckIntegrity(); }
const EngineConfig& Engine::config() const { return impl_->config(); }

}  // namespace polykv
