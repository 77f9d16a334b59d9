// Slots saved to files, restored and erased, in the engine.
#include <filesystem>
#include <fstream>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

using Action = ChangeSlot::Action;
using SlotChannel = std::shared_ptr<Channel<Result<SlotChanged>>>;

class SlotChangeTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    path_ = ::testing::TempDir() + "polykv-slot-" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override {
    EngineTest::TearDown();
    std::filesystem::remove(path_);
  }

  SlotChannel Post(Action action, int32_t id_slot) {
    ChangeSlot change{.action = action, .id_slot = id_slot, .path = path_};
    SlotChannel channel = change.channel;
    engine_->Post(std::move(change));
    return channel;
  }
  std::optional<Result<SlotChanged>> Take(const SlotChannel& channel) {
    Check();
    return channel->Next(std::chrono::milliseconds(0));
  }
  Result<SlotChanged> Carry(Action action, int32_t id_slot) {
    const SlotChannel channel = Post(action, id_slot);
    engine_->RunOneStep();
    return *Take(channel);
  }
  // A request on a slot of its own choice.
  Handle SubmitTo(int32_t id_slot, const std::string& prompt, int32_t n_predict = 16) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt = Tokens(prompt);
    request->sampler = backend_->MakeSampler();
    request->n_predict = n_predict;
    request->id_slot = id_slot;
    Handle handle{request->channel, {}};
    engine_->Post(SubmitGeneration{std::move(request)});
    return handle;
  }
  int32_t CachedBy(Handle handle, const std::string& expected_text) {
    EXPECT_EQ(Finish(handle).text, expected_text);
    return handle.answer.finished->timings.n_prompt_cached;
  }

  std::string path_;
};

TEST_F(SlotChangeTest, AnotherSlotGoesOnFromTheFile) {
  const std::string prompt = "a story that is long enough";
  Handle first = SubmitTo(1, prompt);
  const std::string text = Finish(first).text;
  const Result<SlotChanged> saved = Carry(Action::kSave, 1);
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved.value().n_tokens, static_cast<int32_t>(prompt.size()) + 15);
  Handle other = SubmitTo(0, "something else");
  Finish(other);
  const Result<SlotChanged> restored = Carry(Action::kRestore, 0);
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored.value().n_tokens, saved.value().n_tokens);
  EXPECT_EQ(restored.value().n_bytes, saved.value().n_bytes);
  EXPECT_EQ(CachedBy(SubmitTo(0, prompt + text), Alone(prompt + text)), saved.value().n_tokens);
  EXPECT_EQ(CachedBy(SubmitTo(1, prompt + text), Alone(prompt + text)), saved.value().n_tokens);
}

TEST_F(SlotChangeTest, ASlotIdWrapsAround) {
  Handle first = SubmitTo(1, "a story");
  Finish(first);
  EXPECT_EQ(Carry(Action::kErase, 5).value().n_tokens, 22);
  EXPECT_EQ(CachedBy(SubmitTo(1, "a story"), Alone("a story")), 0);
}

TEST_F(SlotChangeTest, AFileThatIsNoneChangesNothing) {
  Handle first = SubmitTo(0, "a story");
  Finish(first);
  EXPECT_EQ(Carry(Action::kRestore, 0).problem().status, 400) << "no file";
  std::ofstream(path_) << "no sequence";
  EXPECT_EQ(Carry(Action::kRestore, 0).problem().status, 400);
  EXPECT_EQ(CachedBy(SubmitTo(0, "a story, and"), Alone("a story, and")), 7);
}

TEST_F(SlotChangeTest, AFileThatDoesNotFitTheContextIsRefused) {
  std::ofstream file(path_);
  for (int pos = 0; pos < 1025; ++pos) file << pos << " 66 0\n";
  file.close();
  const Result<SlotChanged> restored = Carry(Action::kRestore, 0);
  EXPECT_EQ(restored.problem().message,
            "Unable to restore slot: Restored prompt does not fit in the slot context");
}

TEST_F(SlotChangeTest, ARestoreTakesIdleCellsButNotThoseOfRunningRequests) {
  Handle first = SubmitTo(0, std::string(600, 'x'), 1);
  Finish(first);
  ASSERT_TRUE(Carry(Action::kSave, 0).ok());
  EXPECT_TRUE(Carry(Action::kRestore, 1).ok()) << "slot 0 gave way";
  EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 600);
  Handle running = SubmitTo(2, std::string(500, 'y'), 400);
  Step();
  EXPECT_EQ(engine_->Snapshot()->kv_cells_used, 500) << "slot 1 gave way";
  EXPECT_EQ(Carry(Action::kRestore, 1).problem().status, 400);
  EXPECT_EQ(Finish(running).text, Alone(std::string(500, 'y'), 400));
}

TEST_F(SlotChangeTest, ABusySlotIsWaitedFor) {
  Handle running = SubmitTo(0, "a story", 20);
  Handle next = SubmitTo(0, "another", 20);
  Step(3);
  const SlotChannel erased = Post(Action::kErase, 0);
  const SlotChannel given_up = Post(Action::kErase, 0);
  given_up->Cancel();
  Step();
  EXPECT_FALSE(Take(erased).has_value());
  Finish(running);
  Finish(next);
  EXPECT_EQ(Take(erased)->value().n_tokens, 26) << "before the request that waits for the slot";
  EXPECT_FALSE(Take(given_up).has_value());
}

TEST_F(SlotChangeTest, AShutdownAnswersWhoWaits) {
  Handle running = SubmitTo(0, "a story", 20);
  Step(2);
  const SlotChannel erased = Post(Action::kErase, 0);
  Step();
  engine_->Stop();
  EXPECT_EQ(Take(erased)->problem().status, 503);
}

}  // namespace
}  // namespace polykv
