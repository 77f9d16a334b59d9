// Large shares come in pieces while others decode, and nobody can tell from the text.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class ShareEngineTest : public EngineTest {
 protected:
  static constexpr int32_t kPiece = 16;

  void SetUp() override {
    EngineConfig config = DefaultConfig();
    config.share_piece = kPiece;
    config.share_us = 0;  // one piece per step
    Build(config);
    pool_ = MakePool(prefix_, "long");
  }

  Handle StartStream() {
    Handle stream = Submit({.prompt = "a stream", .n_predict = 300});
    Step(3);
    return stream;
  }
  int32_t StreamTokens() const {
    for (const SlotView& slot : engine_->Snapshot()->slots) {
      if (slot.is_processing && slot.session_id.empty()) return slot.timings.n_generated;
    }
    return 0;
  }
  void ExpectExact(Handle& handle, const std::string& prompt) {
    EXPECT_EQ(Finish(handle).text, Alone(prompt));
    EXPECT_EQ(handle.answer.finished->report.cache_n, static_cast<int32_t>(prefix_.size()));
  }
  // Steps until the request has text; in each of them the stream goes on.
  int StepsUntilText(Handle& handle) {
    for (int n = 1;; ++n) {
      const int32_t before = StreamTokens();
      Step();
      EXPECT_EQ(StreamTokens(), before + 1);
      if (!Look(handle).text.empty() || n > 100) return n;
    }
  }

  const std::string prefix_ = std::string(200, 'p') + "refix";  // 13 pieces
  const std::string prompt_ = prefix_ + " and a question";
  const AttachSpec attach_{.pool = "long"};
  PoolCreated pool_;
};

TEST_F(ShareEngineTest, AStreamGoesOnWhileAnotherTakesOverALongPrefix) {
  Handle stream = StartStream();
  Handle attached = Submit({.prompt = prompt_, .attach = attach_});
  EXPECT_EQ(StepsUntilText(attached), 13);
  ExpectExact(attached, prompt_);
  EXPECT_EQ(Finish(stream).text, Alone("a stream", 300));
}

TEST_F(ShareEngineTest, NobodyWaitsForPiecesWhileNobodyDecodes) {
  Handle attached = Submit({.prompt = prompt_, .attach = attach_});
  Step();
  EXPECT_FALSE(Look(attached).text.empty());
  ExpectExact(attached, prompt_);
}

TEST_F(ShareEngineTest, AForkAndASnapshotOfWhatIsOnItsWayAreExact) {
  Handle stream = StartStream();
  AttachSpec attach = attach_;
  attach.session_id = "agent";
  Handle attached = Submit({.prompt = prompt_, .attach = attach});
  Step(4);
  CreatePool fork{.parent = "long", .tokens = Tokens(prefix_ + ", forked"), .name = "fork"};
  engine_->Post(std::move(fork));
  CreatePool snapshot{.from_session = "agent", .name = "snapshot", .unique = true};
  engine_->Post(std::move(snapshot));
  Step();
  Handle on_fork = Submit({.prompt = prefix_ + ", forked?", .attach = {.pool = "fork"}});
  Handle on_snapshot = Submit({.prompt = prompt_, .attach = {.pool = "snapshot"}});
  EXPECT_EQ(Finish(on_fork).text, Alone(prefix_ + ", forked?"));
  EXPECT_EQ(Finish(on_snapshot).text, Alone(prompt_));
  ExpectExact(attached, prompt_);
  EXPECT_EQ(Finish(stream).text, Alone("a stream", 300));
}

TEST_F(ShareEngineTest, ThePoolMayBeEvictedMeanwhile) {
  Handle stream = StartStream();
  Handle attached = Submit({.prompt = prompt_, .attach = attach_});
  Step(4);
  Change(ChangePool::Action::kEvict, "long");
  ExpectExact(attached, prompt_);
}

TEST_F(ShareEngineTest, ARequestCancelledMeanwhileLeavesNothing) {
  Handle stream = StartStream();
  const int32_t before = backend_->CellsUsed();
  Handle attached = Submit({.prompt = prompt_, .attach = attach_});
  Step(4);
  Cancel(attached);
  Step();
  EXPECT_EQ(backend_->CellsUsed(), before + 5) << "the stream's tokens";
  EXPECT_EQ(engine_->Snapshot()->sessions.size(), 0U);
}

TEST_F(ShareEngineTest, TheOtherChoicesWaitForTheirCellsToo) {
  Handle stream = StartStream();
  Handle both = Submit({.prompt = prefix_, .n_predict = 40, .n_choices = 2});
  Finish(both);
  EXPECT_EQ(both.answer.text, Alone(prefix_, 40));
  EXPECT_EQ(Finish(both.choices.front()).text, Alone(prefix_, 40));
}

}  // namespace
}  // namespace polykv
