// The prompt cache, as requests see it.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class PromptCacheTest : public EngineTest {
 protected:
  static EngineConfig Config() {
    EngineConfig config = DefaultConfig();
    config.host_bytes = -1;
    config.save_idle_slots = true;
    config.clear_idle_slots = true;
    return config;
  }
  void SetUp() override { Build(Config()); }

  // Runs the request alone; its text must be what it is without any cache.
  Finished Complete(const std::string& prompt, Request request = {.prompt = ""}) {
    request.prompt = prompt;
    Handle handle = Submit(request);
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, Alone(prompt));
    return answer.finished.value_or(Finished{});
  }
  int32_t Cached(const std::string& prompt) { return Complete(prompt).timings.n_prompt_cached; }
  int32_t n_entries() const { return engine_->Snapshot()->host_entries; }
};

TEST_F(PromptCacheTest, ADisplacedPromptComesBack) {
  EXPECT_EQ(Cached("the first prompt"), 0);
  EXPECT_EQ(Cached("another one, of other letters"), 0);
  EXPECT_EQ(n_entries(), 1);
  EXPECT_EQ(Cached("the first prompt"), 15);
  EXPECT_EQ(Cached("another one, of other letters, goes on"), 29);
}

TEST_F(PromptCacheTest, OnlyTheStartedSlotHoldsCells) {
  Complete("aaaa");
  Complete("bbbb");
  Complete("cccc");
  EXPECT_EQ(backend_->CellsUsed(), 4 + 15);
  EXPECT_EQ(n_entries(), 2);
}

TEST_F(PromptCacheTest, IdleSlotsStayWhereTheConfigurationSaysSo) {
  EngineConfig config = Config();
  config.clear_idle_slots = false;
  Build(config);
  Complete("aaaa");
  Complete("bbbb");
  EXPECT_EQ(backend_->CellsUsed(), 2 * (4 + 15));
  EXPECT_EQ(n_entries(), 1);
}

TEST_F(PromptCacheTest, WithoutAHostStoreNothingIsSaved) {
  EngineConfig config = Config();
  config.host_bytes = 0;
  Build(config);
  Complete("aaaa");
  Complete("bbbb");
  EXPECT_EQ(backend_->CellsUsed(), 2 * (4 + 15));
  EXPECT_EQ(engine_->Snapshot()->host_bytes, 0);
}

TEST_F(PromptCacheTest, TheStoreStaysWithinItsCap) {
  EngineConfig config = Config();
  config.host_bytes = 1'300;
  Build(config);
  for (char c = 'a'; c <= 'h'; ++c) {
    Complete(std::string(20, c));
    EXPECT_LE(engine_->Snapshot()->host_bytes, 1'300);
  }
  EXPECT_EQ(n_entries(), 1);
}

TEST_F(PromptCacheTest, RunningRequestsAreNotTouched) {
  Handle running = Submit({.prompt = "this one runs", .n_predict = 40});
  Step(3);
  Complete("aaaa");
  Complete("bbbb");
  EXPECT_EQ(Finish(running).text, Alone("this one runs", 40));
}

TEST_F(PromptCacheTest, SessionsKeepTheirCells) {
  Handle first = Submit({.prompt = "of a session", .attach = {.session_id = "s"}});
  Finish(first);
  Complete("aaaa");
  Handle second = Submit({.prompt = "of a session", .attach = {.session_id = "s"}});
  EXPECT_EQ(Finish(second).finished->timings.n_prompt_cached, 11);
}

TEST_F(PromptCacheTest, ASessionsRequestSavesIdleSlotsToo) {
  Complete("aaaa");
  Handle other = Submit({.prompt = "of a session", .attach = {.session_id = "s"}});
  Finish(other);
  EXPECT_EQ(n_entries(), 1);
  EXPECT_EQ(backend_->CellsUsed(), 12 + 15);
}

TEST_F(PromptCacheTest, ASlotChosenByIdIsRefreshedWhenItHoldsOtherTokens) {
  Complete("the first prompt");
  const int32_t holder = Complete("another one, of other letters").slot_id;
  const Finished refreshed = Complete("the first prompt", {.id_slot = holder});
  EXPECT_EQ(refreshed.slot_id, holder);
  EXPECT_EQ(refreshed.timings.n_prompt_cached, 15);
  const Finished cold = Complete("the first prompt", {.id_slot = holder == 0 ? 1 : 0});
  EXPECT_EQ(cold.timings.n_prompt_cached, 0) << "an empty slot stays empty, as in llama-server";
}

}  // namespace
}  // namespace polykv
