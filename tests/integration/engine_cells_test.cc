// A client that goes away in any state frees its cells within one step and changes no other stream:
// judged by libllama's own cells, since our accounting compared with itself proves nothing.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "integration/real_cells.h"
#include "integration/test_model.h"

namespace polykv {
namespace {

enum class VictimState {
  kQueued,
  kWaitingForPool,
  kPrefilling,
  kDecoding,
  kPlainPrefilling,
  kPlainDecoding
};

constexpr std::pair<VictimState, const char*> kVictimStates[] = {
    {VictimState::kQueued, "queued"},
    {VictimState::kWaitingForPool, "waiting for the pool"},
    {VictimState::kPrefilling, "prefilling"},
    {VictimState::kDecoding, "decoding"},
    {VictimState::kPlainPrefilling, "prefilling without a pool"},
    {VictimState::kPlainDecoding, "decoding without a pool"},
};

constexpr int32_t kPoolLength = 140;
constexpr int32_t kGenerated = 16;
constexpr size_t kMostSurvivors = 4;  // every slot
constexpr const char* kPoolName = "documents";

EngineConfig Config() {
  EngineConfig config;
  config.n_parallel = 4;
  config.max_pools = 2;
  config.max_sessions = 8;
  config.n_ctx_plain = 1024;
  config.n_ctx_session = 1024;
  config.prefill_chunk = 32;
  return config;
}

// What came of one request.
struct Stream {
  std::shared_ptr<GenerationChannel> channel;
  int32_t n_private = 0;  // prompt tokens that do not come from the pool
  std::vector<Token> tokens;
  std::optional<Started> started;
  bool finished = false;
  std::string problem;
};

// An engine on the real model, driven by hand; every step is followed by a look at the real cells.
class Driver {
 public:
  explicit Driver(LlamaBackend* backend)
      : backend_(backend),
        engine_(backend, &clock_, Config()),
        text_(DocumentTokens(*backend, 0, 4000)) {}

  void CreatePool(const std::shared_ptr<Channel<Result<PoolCreated>>>& channel, bool wait) {
    polykv::CreatePool command;
    command.tokens = PoolTokens();
    command.name = kPoolName;
    command.wait = wait;
    command.channel = channel;
    engine_.Post(std::move(command));
  }

  // A prompt of the pool's tokens, if attached, and `n_private` tokens that depend on `variant`.
  void Submit(Stream* stream, bool attached, int32_t n_private, size_t variant) {
    auto request = std::make_unique<GenerationRequest>();
    if (attached) request->prompt = PoolTokens();
    const auto first = text_.begin() + static_cast<std::ptrdiff_t>(1000 + 300 * variant);
    request->prompt.insert(request->prompt.end(), first, first + n_private);
    request->sampler = MakeGreedySampler(*backend_);
    request->n_predict = kGenerated;
    request->stream = true;
    if (attached) request->attach.pool = kPoolName;
    stream->channel = request->channel;
    stream->n_private = n_private;
    engine_.Post(SubmitGeneration{std::move(request)});
  }

  bool Step() {
    const bool busy = engine_.RunOneStep();
    engine_.CheckIntegrity();
    const RealCells cells = ReadRealCells(*backend_);
    EXPECT_EQ(cells.ownerless, 0);
    EXPECT_EQ(cells.used, engine_.Snapshot()->kv_cells_used);
    for (const auto& [seq, positions] : cells.positions) {
      EXPECT_EQ(positions, PositionsUpTo(static_cast<Pos>(positions.size()))) << "sequence " << seq;
    }
    return busy;
  }

  template <typename Condition>
  void StepUntil(Condition condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return;
      Step();
    }
    FAIL() << "the engine never came to the state that the test needs";
  }

  static void Collect(Stream* stream) {
    while (auto message = stream->channel->Next(std::chrono::milliseconds(0))) {
      if (auto* started = std::get_if<Started>(&message->event)) stream->started = *started;
      if (auto* piece = std::get_if<Piece>(&message->event))
        stream->tokens.push_back(piece->token.token);
      if (std::holds_alternative<Finished>(message->event)) stream->finished = true;
      if (auto* problem = std::get_if<Problem>(&message->event)) stream->problem = problem->message;
    }
  }

  std::shared_ptr<const EngineSnapshot> snapshot() const { return engine_.Snapshot(); }
  int32_t real_cells() const { return ReadRealCells(*backend_).used; }
  std::vector<Token> PoolTokens() const { return {text_.begin(), text_.begin() + kPoolLength}; }

 private:
  LlamaBackend* backend_;
  ManualClock clock_;
  Engine engine_;
  std::vector<Token> text_;
};

// One run: survivors and, unless it is the undisturbed one, a victim that is brought into a state
// and then cancelled.
class Scenario {
 public:
  Scenario(LlamaBackend* backend, std::optional<VictimState> state)
      : driver_(backend),
        state_(state),
        survivors_(!state.has_value() || *state == VictimState::kQueued ? kMostSurvivors
                                                                        : kMostSurvivors - 1) {}

  // The tokens of every survivor.
  std::vector<std::vector<Token>> Run() {
    BringUp();
    if (state_.has_value()) CancelVictim();
    driver_.StepUntil([this] {
      return std::all_of(survivors_.begin(), survivors_.end(), [](Stream& survivor) {
        Driver::Collect(&survivor);
        return survivor.finished || !survivor.problem.empty();
      });
    });
    std::vector<std::vector<Token>> tokens;
    for (const Stream& survivor : survivors_) {
      EXPECT_EQ(survivor.problem, "");
      tokens.push_back(survivor.tokens);
    }
    return tokens;
  }

 private:
  void BringUp() {
    const auto pool = std::make_shared<Channel<Result<PoolCreated>>>();
    driver_.CreatePool(pool, /*wait=*/false);
    if (state_ == VictimState::kWaitingForPool) {
      driver_.StepUntil([this] { return PoolIs("materializing") && n_prefilled() > 0; });
      SubmitSurvivors();
      SubmitVictim();
      driver_.Step();
      ASSERT_TRUE(PoolIs("materializing"));
      ASSERT_EQ(driver_.snapshot()->n_waiting, 4);
      return;
    }
    driver_.StepUntil([this] { return PoolIs("resident"); });
    SubmitSurvivors();
    driver_.StepUntil([this] { return SurvivorsDecode(); });
    if (!state_.has_value()) return;
    SubmitVictim();
    driver_.StepUntil([this] { return VictimIsThere(); });
  }

  void CancelVictim() {
    const int32_t n_waiting = driver_.snapshot()->n_waiting;
    victim_.channel->Cancel();
    driver_.Step();
    EXPECT_EQ(driver_.real_cells(), ExpectedCells());
    const bool waited = state_ == VictimState::kQueued || state_ == VictimState::kWaitingForPool;
    if (waited) {
      EXPECT_EQ(driver_.snapshot()->n_waiting, n_waiting - 1);
    }
    Driver::Collect(&victim_);
    EXPECT_FALSE(victim_.finished);
  }

  // The pool, and what each survivor has computed behind it: its suffix and all its tokens but the
  // last, which has been sampled only.
  int32_t ExpectedCells() {
    int32_t cells = n_prefilled();
    for (Stream& survivor : survivors_) {
      Driver::Collect(&survivor);
      EXPECT_FALSE(survivor.finished) << "the scenario wants its survivors running";
      if (survivor.tokens.empty()) continue;  // waiting; the scenario has no survivor in prefill
      cells += survivor.n_private + static_cast<int32_t>(survivor.tokens.size()) - 1;
    }
    return cells;
  }

  void SubmitSurvivors() {
    size_t variant = 0;
    for (Stream& survivor : survivors_) {
      driver_.Submit(&survivor, /*attached=*/true, 8 + static_cast<int32_t>(variant), variant);
      ++variant;
    }
  }

  void SubmitVictim() {
    const bool plain =
        state_ == VictimState::kPlainPrefilling || state_ == VictimState::kPlainDecoding;
    driver_.Submit(&victim_, !plain, 100, survivors_.size());
  }

  bool SurvivorsDecode() {
    return std::all_of(survivors_.begin(), survivors_.end(), [](Stream& survivor) {
      Driver::Collect(&survivor);
      return survivor.tokens.size() >= 2;
    });
  }

  bool VictimIsThere() {
    Driver::Collect(&victim_);
    switch (*state_) {
      case VictimState::kQueued:
        return driver_.snapshot()->n_waiting == 1;
      case VictimState::kPrefilling:
      case VictimState::kPlainPrefilling:
        return victim_.started.has_value() && VictimTokens() >= VictimShared() + 32 &&
               victim_.tokens.empty();
      case VictimState::kDecoding:
      case VictimState::kPlainDecoding:
        return victim_.tokens.size() >= 3;
      case VictimState::kWaitingForPool:
        break;
    }
    return false;
  }

  int32_t VictimTokens() const {
    return driver_.snapshot()->slots[static_cast<size_t>(victim_.started->slot_id)].n_tokens;
  }
  int32_t VictimShared() const { return state_ == VictimState::kPrefilling ? kPoolLength : 0; }

  bool PoolIs(const std::string& residency) const {
    const auto snapshot = driver_.snapshot();
    return snapshot->pools.size() == 1 && snapshot->pools[0].residency == residency;
  }
  int32_t n_prefilled() const { return driver_.snapshot()->pools.at(0).n_prefilled; }

  Driver driver_;
  const std::optional<VictimState> state_;  // none: no victim
  std::vector<Stream> survivors_;
  Stream victim_;
};

class EngineCellsTest : public testing::Test {
 protected:
  // Small batches, so that a prompt takes several steps. Precise, since what shares a batch must
  // not change a token by rounding.
  std::unique_ptr<LlamaBackend> backend_ = LoadTestModel({.n_ctx = 1024,
                                                          .n_parallel = Config().n_parallel,
                                                          .n_seq_max = Config().n_seq_max(),
                                                          .n_batch = 64,
                                                          .n_ubatch = 64,
                                                          .precise = true});

  void ClearCells() { llama_memory_clear(llama_get_memory(backend_->context()), /*data=*/true); }
};

TEST_F(EngineCellsTest, ACancelledClientFreesItsCellsAtOnceAndDisturbsNobody) {
  const auto undisturbed = Scenario(backend_.get(), std::nullopt).Run();
  ASSERT_EQ(undisturbed.size(), kMostSurvivors);
  for (const auto& [state, name] : kVictimStates) {
    SCOPED_TRACE(name);
    ClearCells();
    const auto disturbed = Scenario(backend_.get(), state).Run();
    ASSERT_FALSE(disturbed.empty());
    for (size_t i = 0; i < disturbed.size(); ++i) {
      EXPECT_FALSE(disturbed[i].empty());
      EXPECT_EQ(disturbed[i], undisturbed[i]) << "survivor " << i;
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(EngineCellsTest, APoolWhoseLastCreatorLeavesIsGoneAtOnce) {
  Driver driver(backend_.get());
  const auto channel = std::make_shared<Channel<Result<PoolCreated>>>();
  driver.CreatePool(channel, /*wait=*/true);
  driver.StepUntil([&] { return driver.real_cells() >= 64; });
  ASSERT_LT(driver.real_cells(), kPoolLength);
  channel->Cancel();
  driver.Step();
  EXPECT_EQ(driver.real_cells(), 0);
  EXPECT_TRUE(driver.snapshot()->pools.empty());
}

}  // namespace
}  // namespace polykv
