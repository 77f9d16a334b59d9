// Random operations with fixed seeds: whatever clients do, cells are counted right, every sequence
// has the cells that we think it has, every answer is a prefix of what the request gives alone, and
// nothing is left when all is released.
#include "engine/engine_test_support.h"
#include "engine/random_operations.h"

namespace polykv {
namespace {

struct Memory {
  const char* name;
  FakeBackendOptions options;
};

class RandomEngineTest : public EngineTest, public ::testing::WithParamInterface<Memory> {
 protected:
  using Open = RandomOperations::Open;

  void Build(bool drafts) {
    EngineConfig config = DefaultConfig();
    config.max_pools = 6;
    config.max_sessions = 5;
    config.n_ctx_plain = 600;
    config.n_ctx_session = 600;
    config.prefill_chunk = 24;
    config.share_piece = 16;  // the more shares are under way at a time
    config.share_us = 0;
    config.grace_ms = 200;
    config.session_idle_ms = 2'000;
    config.session_hot_ms = 100;
    config.park_bytes = 12'000;
    config.host_bytes = 20'000;
    config.checkpoints = {.max_count = 4, .min_step = 16};
    FakeBackendOptions options = GetParam().options;
    options.n_ctx = options.unified ? 700 : 600 * config.n_seq_max();
    options.n_batch = 128;
    options.n_ubatch = 48;
    options.n_draft = drafts && !options.recurrent ? 5 : 0;
    options.wrong_every = 4;
    EngineTest::Build(config, options);
  }

  void CheckSequences() const {
    const std::map<SeqId, int32_t> holdings = engine_->Holdings();
    for (SeqId seq = 0; seq < backend_->info().n_seq_max; ++seq) {
      const std::vector<Pos> positions = backend_->Positions(seq);
      const auto held = holdings.find(seq);
      const int32_t expected = held == holdings.end() ? 0 : held->second;
      ASSERT_EQ(static_cast<int32_t>(positions.size()), expected) << "sequence " << seq;
      ASSERT_TRUE(expected == 0 || positions.back() == expected - 1) << "sequence " << seq;
    }
  }

  void CheckAnswer(const Open& open) {
    if (open.problem.has_value()) {
      const int status = open.problem->status;
      ASSERT_TRUE(status == 503 || status == 410 || status == 400) << open.problem->message;
      return;
    }
    ++n_finished_;
    n_shared_ += open.finished->report.pool_id != kNoPool ? 1 : 0;
    const std::string alone = Alone(open.prompt, open.n_predict);
    ASSERT_EQ(open.text, alone.substr(0, open.text.size()));
    ASSERT_TRUE(open.finished->truncated || open.text.size() == alone.size());
  }

  void Run(unsigned seed, int n_operations) {
    RandomOperations operations(engine_.get(), &clock_, {}, seed,
                                [this] { return backend_->MakeSampler(); });
    std::mt19937 random(seed);
    for (int i = 0; i < n_operations; ++i) {
      operations.DoSomething();
      if (random() % 200 == 0) backend_->RefuseNextDecode();
      Step();
      CheckSequences();
      for (const Open& open : operations.TakeAnswered()) CheckAnswer(open);
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", operation " << i;
    }
    RunAll();
    for (const Open& open : operations.TakeAnswered()) CheckAnswer(open);
    EXPECT_EQ(operations.n_open(), 0U) << "somebody never got an answer";
    for (int i = 0; i < 2; ++i) {  // what was on its way then is released now
      operations.ReleaseAll();
      Step();
      clock_.AdvanceUs(300'000);
      Step();
    }
    EXPECT_TRUE(engine_->Snapshot()->pools.empty());
    EXPECT_TRUE(engine_->Snapshot()->sessions.empty());
    EXPECT_EQ(engine_->Snapshot()->seq_ids_used, 4);
    EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 0);
    EXPECT_EQ(backend_->CellsUsed(), 0);
    const auto snapshot = engine_->Snapshot();
    EXPECT_EQ(snapshot->host_sessions + snapshot->host_pools, 0);
    EXPECT_EQ(snapshot->parked_bytes, 0);
    n_resumed_ += snapshot->counters.resumed;
    n_restored_ += snapshot->counters.sessions_restored + snapshot->counters.pools_restored;
  }

  int n_finished_ = 0;
  int n_shared_ = 0;
  uint64_t n_resumed_ = 0;
  uint64_t n_restored_ = 0;
};

TEST_P(RandomEngineTest, ThousandsOfOperationsLeaveNothingBehind) {
  for (const unsigned seed : {301U, 302U, 303U, 304U}) {
    Build(seed % 2 == 1);
    Run(seed, 1500);
    if (HasFailure()) break;
  }
  EXPECT_GT(n_finished_, 700);
  EXPECT_GT(n_shared_, 200);
  if (!GetParam().options.unified) return;
  EXPECT_GT(n_resumed_, 10U);
  EXPECT_GT(n_restored_, 10U);
}

const Memory kMemories[] = {{"attention", {}},
                            {"split", {.unified = false}},
                            {"window", {.n_swa = 40}},
                            {"recurrent", {.recurrent = true}},
                            {"recurrent_split", {.unified = false, .recurrent = true}}};

INSTANTIATE_TEST_SUITE_P(Memories, RandomEngineTest, ::testing::ValuesIn(kMemories),
                         [](const auto& memory) { return std::string(memory.param.name); });

}  // namespace
}  // namespace polykv
