// Two tenants with equal prompts, names and ids in one engine: nothing of one reaches the other.
#include <filesystem>

#include "engine/engine_test_support.h"

namespace polykv {
namespace {

constexpr TenantId kOne = 1;
constexpr TenantId kTwo = 2;
const std::string kPrompt = "a beginning that both of them know by heart";

class TenantsTest : public EngineTest {
 protected:
  Handle SubmitFor(TenantId tenant, const std::string& prompt, AttachSpec attach = {},
                   int32_t n_predict = 8, int32_t id_slot = -1) {
    auto request = Make({.prompt = prompt, .n_predict = n_predict, .id_slot = id_slot});
    request->tenant = tenant;
    request->prompt = Tokens(prompt);
    request->attach = std::move(attach);
    Handle handle{request->channel};
    engine_->Post(SubmitGeneration{std::move(request)});
    return handle;
  }
  // Tokens that the request did not compute; its text must be what it is alone.
  int32_t CachedFor(TenantId tenant, const std::string& prompt, AttachSpec attach = {},
                    int32_t id_slot = -1) {
    Handle handle = SubmitFor(tenant, prompt, std::move(attach), 8, id_slot);
    const Answer& answer = Finish(handle);
    EXPECT_EQ(answer.text, Alone(prompt, 8));
    last_ = answer.finished->report;
    return answer.finished->timings.n_prompt_cached;
  }
  template <typename Command>
  auto Ask(Command command) {
    const auto channel = command.channel;
    engine_->Post(std::move(command));
    RunAll();
    Check();
    return *channel->Next(std::chrono::milliseconds(0));
  }
  PoolCreated PoolFor(TenantId tenant, const std::string& text, const std::string& name) {
    return Ask(CreatePool{.tenant = tenant, .tokens = Tokens(text), .name = name}).value();
  }
  SessionView SessionOf(TenantId tenant) const {
    for (const SessionView& session : engine_->Snapshot()->sessions) {
      if (session.tenant == tenant) return session;
    }
    return {};
  }

  AttachReport last_;
};

TEST_F(TenantsTest, ASlotIsReusedByItsTenantAlone) {
  for (const std::string first : {"", "b ", "c ", "d "}) {  // takes every slot
    EXPECT_EQ(CachedFor(kOne, first + kPrompt), 0);
  }
  EXPECT_EQ(CachedFor(kTwo, kPrompt), 0) << "in the oldest slot, which holds just that";
  EXPECT_GT(CachedFor(kOne, "b " + kPrompt), 0);
  EXPECT_GT(CachedFor(kTwo, kPrompt), 0);
  EXPECT_EQ(CachedFor(kEverybody, kPrompt), 0);
}

TEST_F(TenantsTest, ASlotThatIsNamedIsNotReusedEither) {
  EXPECT_EQ(CachedFor(kOne, kPrompt, {}, 2), 0);
  EXPECT_EQ(CachedFor(kTwo, kPrompt, {}, 2), 0);
  EXPECT_GT(CachedFor(kTwo, kPrompt, {}, 2), 0);
}

TEST_F(TenantsTest, ThePromptCacheGivesBackOnlyWhatWasTheTenants) {
  EngineConfig config = DefaultConfig();
  config.n_parallel = 1;
  config.host_bytes = 1 << 20;
  Build(config);
  EXPECT_EQ(CachedFor(kOne, kPrompt), 0);
  EXPECT_EQ(CachedFor(kTwo, "something else"), 0);  // the slot's tokens go to the prompt cache
  EXPECT_EQ(CachedFor(kTwo, kPrompt), 0);
  EXPECT_GT(CachedFor(kOne, kPrompt), 0);
  EXPECT_GT(CachedFor(kTwo, kPrompt), 0);
}

TEST_F(TenantsTest, AnEmptyRequestLearnsNothingOfItsSlot) {
  EXPECT_EQ(CachedFor(kOne, kPrompt, {}, 0), 0);
  Handle empty = SubmitFor(kTwo, "", {}, 0, 0);
  EXPECT_EQ(Finish(empty).finished->n_tokens_cached, 0);
}

TEST_F(TenantsTest, EqualPoolsAreTwo) {
  const PoolCreated first = PoolFor(kOne, kPrompt, "docs");
  const PoolCreated second = PoolFor(kTwo, kPrompt, "docs");
  EXPECT_TRUE(second.created);
  EXPECT_EQ(second.n_prefilled, second.prefix_len);
  EXPECT_NE(first.pool_id, second.pool_id);
  EXPECT_FALSE(PoolFor(kOne, kPrompt, "docs").created);
  EXPECT_EQ(CachedFor(kTwo, kPrompt + " and more", {.pool = "docs"}), first.prefix_len);
  EXPECT_EQ(last_.pool_id, second.pool_id);
}

TEST_F(TenantsTest, AnotherTenantsPoolIsNotThere) {
  const PoolCreated pool = PoolFor(kOne, kPrompt, "docs");
  for (const std::string& reference : {std::string("docs"), std::to_string(pool.pool_id)}) {
    EXPECT_EQ(CachedFor(kTwo, kPrompt + " and more", {.pool = reference}), 0);
    EXPECT_EQ(last_.miss_reason, "no_pool");
    Handle strict =
        SubmitFor(kTwo, kPrompt + " and more", {.pool = reference, .error_on_miss = true});
    EXPECT_EQ(Finish(strict).problem->type, "pool_not_found");
    for (const auto action :
         {ChangePool::Action::kPin, ChangePool::Action::kUnpin, ChangePool::Action::kEvict,
          ChangePool::Action::kFlush, ChangePool::Action::kRelease}) {
      const ChangePool change{.tenant = kTwo, .action = action, .pool = reference, .force = true};
      EXPECT_EQ(Ask(change).problem().type, "pool_not_found");
    }
    const CreatePool fork{
        .tenant = kTwo, .parent = reference, .tokens = Tokens("!"), .append = true};
    EXPECT_EQ(Ask(fork).problem().type, "pool_not_found");
    EXPECT_EQ(Ask(SetAdmission{.tenant = kTwo, .pool = reference}).problem().type,
              "pool_not_found");
    EXPECT_EQ(Ask(AskCapacity{.tenant = kTwo, .pool = reference}).problem().type, "pool_not_found");
    EXPECT_EQ(Ask(ReadPoolTokens{.tenant = kTwo, .pool = reference}).problem().type,
              "pool_not_found");
  }
  const PoolView view = engine_->Snapshot()->pools.at(0);
  EXPECT_EQ(view.tenant, kOne);
  EXPECT_EQ(view.residency, "resident");
  EXPECT_EQ(view.refs, 1);
  EXPECT_FALSE(view.pinned);
}

TEST_F(TenantsTest, EqualSessionsAreTwo) {
  const AttachSpec attach{.session_id = "s"};
  EXPECT_EQ(CachedFor(kOne, kPrompt, attach), 0);
  const CreatePool from_session{.tenant = kTwo, .from_session = "s"};
  EXPECT_EQ(Ask(from_session).problem().type, "session_not_found");
  EXPECT_EQ(CachedFor(kTwo, kPrompt, attach), 0);
  EXPECT_GT(CachedFor(kOne, kPrompt, attach), 0);
  ASSERT_EQ(engine_->Snapshot()->sessions.size(), 2U);

  EXPECT_EQ(Ask(EndSessions{.tenant = kTwo}).value(), 1);
  EXPECT_EQ(Ask(EndSessions{.tenant = kTwo, .session_id = "s"}).problem().type,
            "session_not_found");
  EXPECT_GT(SessionOf(kOne).n_tokens, 0);
  EXPECT_GT(CachedFor(kOne, kPrompt, attach), 0);
}

TEST_F(TenantsTest, EqualSessionsAreSavedApart) {
  EngineConfig config = DefaultConfig();
  config.max_sessions = 1;  // each takes the other's sequence
  config.host_bytes = 1 << 20;
  Build(config);
  const AttachSpec attach{.session_id = "s"};
  EXPECT_EQ(CachedFor(kOne, kPrompt, attach), 0);
  EXPECT_EQ(CachedFor(kTwo, kPrompt, attach), 0);
  EXPECT_GT(CachedFor(kOne, kPrompt, attach), 0);
  EXPECT_GT(CachedFor(kTwo, kPrompt, attach), 0);
  EXPECT_EQ(Ask(EndSessions{.tenant = kTwo}).value(), 1);
  EXPECT_GT(CachedFor(kOne, kPrompt, attach), 0);
}

TEST_F(TenantsTest, ARunningSessionShowsAtItsTenantAlone) {
  Handle idle = SubmitFor(kOne, kPrompt, {.session_id = "s"});
  Finish(idle);
  Handle running = SubmitFor(kTwo, kPrompt, {.session_id = "s"}, 40);
  Step(4);
  EXPECT_EQ(SessionOf(kOne).state, "idle");
  EXPECT_EQ(SessionOf(kTwo).state, "decoding");
  Finish(running);
}

TEST_F(TenantsTest, AnotherTenantsSlotSharesNothing) {
  EXPECT_EQ(CachedFor(kOne, kPrompt, {}, 1), 0);
  const AttachSpec attach{.shared_pool_slot = 1, .session_id = "s"};
  EXPECT_EQ(CachedFor(kTwo, kPrompt + " and more", attach), 0);
  EXPECT_EQ(last_.miss_reason, "evicted");
  EXPECT_GT(CachedFor(kOne, kPrompt + " and more", attach), 0);

  Handle decoding = SubmitFor(kOne, kPrompt, {}, 200, 2);
  Step(3);
  EXPECT_EQ(CachedFor(kTwo, kPrompt + " and more", {.shared_pool_slot = 2}), 0);
  Finish(decoding);
}

TEST_F(TenantsTest, SlotsAreSavedAndErasedByTheirTenantAlone) {
  const std::string path = ::testing::TempDir() + "polykv-tenants-slot";
  EXPECT_EQ(CachedFor(kOne, kPrompt, {}, 0), 0);
  using Action = ChangeSlot::Action;
  for (const int32_t id_slot : {0, 3}) {  // another tenant's and an empty one
    for (const Action action : {Action::kSave, Action::kErase}) {
      const ChangeSlot change{.tenant = kTwo, .action = action, .id_slot = id_slot, .path = path};
      EXPECT_EQ(Ask(change).problem().status, 404);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  ChangeSlot change{.tenant = kOne, .action = Action::kSave, .path = path};
  EXPECT_TRUE(Ask(change).ok());
  change.id_slot = 1;
  change.action = Action::kRestore;
  EXPECT_TRUE(Ask(change).ok());
  EXPECT_EQ(CachedFor(kTwo, kPrompt, {}, 1), 0);
  std::filesystem::remove(path);
}

TEST_F(TenantsTest, ThinkingIsEndedByItsTenantAlone) {
  auto request = Make({.prompt = kPrompt, .n_predict = 40, .reasoning_end = "</think>"});
  request->tenant = kOne;
  request->prompt = Tokens(kPrompt);
  Handle thinking{request->channel};
  engine_->Post(SubmitGeneration{std::move(request)});
  Step(3);
  const auto end = [this](TenantId tenant) {
    EndReasoning command{.tenant = tenant, .completion_id = kPrompt};
    const auto channel = command.channel;
    engine_->Post(std::move(command));
    engine_->RunOneStep();
    return channel->Next(std::chrono::milliseconds(0))->value();
  };
  EXPECT_EQ(end(kTwo), EndReasoning::Outcome::kNoCompletion);
  EXPECT_EQ(end(kOne), EndReasoning::Outcome::kDone);
  Finish(thinking);
}

TEST_F(TenantsTest, StreamsOfTwoTenantsShareTheirSteps) {
  Handle first = SubmitFor(kOne, kPrompt, {}, 20);
  Handle second = SubmitFor(kTwo, kPrompt, {}, 20);
  Finish(first);
  Collect(*second.channel, second.answer);
  EXPECT_EQ(first.answer.text, second.answer.text);
  EXPECT_LT(engine_->Snapshot()->counters.n_decode, 25U);
}

}  // namespace
}  // namespace polykv
