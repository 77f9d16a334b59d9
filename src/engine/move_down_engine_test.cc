// Streams move down into the cells that idle sessions have left.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class MoveDownTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineConfig config = DefaultConfig();
    config.n_ctx_plain = config.n_ctx_session = 4096;
    Build(config, {.n_ctx = 8192});
  }
  // Three streams, the second on a pool, whose cells lie above those of an idle session of 3,000.
  void StartAbove() {
    MakePool(prefix_, "pool");
    Handle idle = Submit(
        {.prompt = std::string(3'000, 'i'), .n_predict = 1, .attach = {.session_id = "idle"}});
    Finish(idle);
    for (int i = 0; i < 3; ++i) {
      AttachSpec attach;
      if (i == 1) attach.pool = "pool";
      streams_.push_back(Submit({.prompt = Prompt(i), .n_predict = 60, .attach = attach}));
    }
    Step(8);
    ASSERT_GT(backend_->HighestCell(), 3'000);
  }
  std::string Prompt(int i) const { return prefix_ + "stream " + std::to_string(i); }

  const std::string prefix_ = "what all begin with; ";
  std::vector<Handle> streams_;
};

TEST_F(MoveDownTest, StreamsMoveWhenAnIdleSessionHasLeft) {
  StartAbove();
  engine_->Post(EndSessions{.session_id = "idle"});
  Step(5);
  EXPECT_LT(backend_->HighestCell(), 300);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Finish(streams_[static_cast<size_t>(i)]).text, Alone(Prompt(i), 60));
  }
}

TEST_F(MoveDownTest, NobodyMovesWhileTheCellsAreInUse) {
  StartAbove();
  Step(5);
  EXPECT_GT(backend_->HighestCell(), 3'000);
}

}  // namespace
}  // namespace polykv
