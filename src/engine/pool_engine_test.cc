// Pools: created, attached to, released.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

using PoolEngineTest = EngineTest;

const std::string kPrefix = "the shared beginning of all these agents; ";  // 42 bytes = tokens

AttachSpec To(const PoolCreated& pool) { return {.pool = std::to_string(pool.pool_id)}; }

TEST_F(PoolEngineTest, SessionsShareAPoolAndGiveWhatTheyGiveAlone) {
  const PoolCreated pool = MakePool(kPrefix);
  EXPECT_TRUE(pool.created);
  EXPECT_EQ(pool.prefix_len, 42);
  EXPECT_EQ(pool.n_prefilled, 42);
  EXPECT_EQ(backend_->CellsUsed(), 42);
  std::vector<Handle> handles;
  for (int i = 0; i < 6; ++i) {
    handles.push_back(
        Submit({.prompt = kPrefix + "agent " + std::to_string(i), .attach = To(pool)}));
  }
  RunAll();
  for (int i = 0; i < 6; ++i) {
    const Answer& answer = Look(handles[static_cast<size_t>(i)]);
    EXPECT_EQ(answer.text, Alone(kPrefix + "agent " + std::to_string(i)));
    EXPECT_EQ(answer.finished->report.cache_n, 42);
    EXPECT_EQ(answer.finished->report.pool_id, pool.pool_id);
    EXPECT_EQ(answer.finished->report.miss_reason, "");
    EXPECT_FALSE(answer.finished->report.prefix_break_at.has_value());
  }
  EXPECT_EQ(backend_->CellsUsed(), 42);
  EXPECT_EQ(backend_->n_decoded_tokens(), 42U + 6 * (7 + 15));
}

TEST_F(PoolEngineTest, EqualTokensGiveTheSamePoolWithOneMoreReference) {
  const PoolCreated first = MakePool(kPrefix);
  const PoolCreated second = MakePool(kPrefix);
  EXPECT_FALSE(second.created);
  EXPECT_EQ(second.pool_id, first.pool_id);
  EXPECT_EQ(engine_->Snapshot()->pools[0].refs, 2);
  EXPECT_EQ(backend_->n_decoded_tokens(), 42U);
}

TEST_F(PoolEngineTest, CreatorsAtOnceShareOneMaterialization) {
  std::vector<PoolChannel> channels;
  for (int i = 0; i < 4; ++i) channels.push_back(PostPool(std::string(600, 'z')));
  RunAll();
  int n_created = 0;
  for (const auto& channel : channels) n_created += Take(channel)->value().created ? 1 : 0;
  EXPECT_EQ(n_created, 1);
  EXPECT_EQ(backend_->n_decoded_tokens(), 600U);
  EXPECT_EQ(engine_->Snapshot()->pools[0].refs, 4);
}

TEST_F(PoolEngineTest, AttachesDuringMaterializationWaitForIt) {
  const PoolChannel channel = PostPool(std::string(700, 'z'), "long", /*wait=*/false);
  std::vector<Handle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(
        Submit({.prompt = std::string(700, 'z') + char('a' + i), .attach = {.pool = "long"}}));
  }
  Step();
  EXPECT_FALSE(Take(channel)->value().ready);
  EXPECT_FALSE(Look(handles[0]).started.has_value());
  RunAll();
  for (Handle& handle : handles) EXPECT_EQ(Look(handle).finished->report.cache_n, 700);
  EXPECT_EQ(backend_->n_decoded_tokens(), 700U + 4 * 16);
}

TEST_F(PoolEngineTest, AFifthAgentAttachesWhileOthersDecode) {
  const PoolCreated pool = MakePool(kPrefix);
  std::vector<Handle> handles;
  for (int i = 0; i < 3; ++i) {
    handles.push_back(
        Submit({.prompt = kPrefix + "x" + std::to_string(i), .n_predict = 60, .attach = To(pool)}));
  }
  Step(10);
  Handle late = Submit({.prompt = kPrefix + "late", .n_predict = 5, .attach = To(pool)});
  EXPECT_EQ(Finish(late).finished->report.cache_n, 42);
  EXPECT_EQ(late.answer.text, Alone(kPrefix + "late", 5));
}

TEST_F(PoolEngineTest, APartialMatchSharesWhatIsEqualAndSaysWhereItBreaks) {
  const PoolCreated pool = MakePool(kPrefix);
  Handle handle = Submit({.prompt = "the shared beginning of nothing", .attach = To(pool)});
  const Answer& answer = Finish(handle);
  EXPECT_EQ(answer.finished->report.cache_n, 24);
  EXPECT_EQ(answer.finished->report.prefix_break_at, 24);
  EXPECT_EQ(answer.text, Alone("the shared beginning of nothing"));
}

TEST_F(PoolEngineTest, APromptEqualToThePrefixComputesOneToken) {
  const PoolCreated pool = MakePool(kPrefix);
  Handle handle = Submit({.prompt = kPrefix, .attach = To(pool)});
  EXPECT_EQ(Finish(handle).finished->report.cache_n, 41);
  EXPECT_EQ(handle.answer.text, Alone(kPrefix));
}

TEST_F(PoolEngineTest, MissesSayWhy) {
  MakePool(kPrefix, "p");
  Handle diverged = Submit({.prompt = "nothing in common", .attach = {.pool = "p"}});
  EXPECT_EQ(Finish(diverged).finished->report.miss_reason, "diverged");
  Handle unknown = Submit({.prompt = "hello", .attach = {.pool = "nope"}});
  EXPECT_EQ(Finish(unknown).finished->report.miss_reason, "no_pool");
  Handle strict = Submit({.prompt = "hello", .attach = {.pool = "nope", .error_on_miss = true}});
  EXPECT_EQ(Finish(strict).problem->status, 404);
  EXPECT_EQ(strict.answer.problem->type, "pool_not_found");
  EXPECT_EQ(engine_->Snapshot()->counters.miss.no_pool, 1U);
  EXPECT_EQ(engine_->Snapshot()->counters.miss.diverged, 1U);
}

TEST_F(PoolEngineTest, AnExplicitShareMayNotExceedTheTrueMatch) {
  MakePool(kPrefix, "p");
  Handle too_long =
      Submit({.prompt = kPrefix + "x", .attach = {.pool = "p", .shared_prefix_n_tokens = 43}});
  EXPECT_EQ(Finish(too_long).problem->status, 400);
  Handle shorter =
      Submit({.prompt = kPrefix + "x", .attach = {.pool = "p", .shared_prefix_n_tokens = 10}});
  EXPECT_EQ(Finish(shorter).finished->report.cache_n, 10);
  EXPECT_EQ(shorter.answer.text, Alone(kPrefix + "x"));
}

TEST_F(PoolEngineTest, APinnedPoolSurvivesUnrelatedTraffic) {
  MakePool(kPrefix, "p");
  Change(ChangePool::Action::kPin, "p");
  for (int i = 0; i < 8; ++i) {
    Handle other =
        Submit({.prompt = std::string(500, static_cast<char>('a' + i)), .n_predict = 200});
    Finish(other);
  }
  Handle handle = Submit({.prompt = kPrefix + "x", .attach = {.pool = "p"}});
  EXPECT_EQ(Finish(handle).finished->report.cache_n, 42);
  EXPECT_EQ(engine_->Snapshot()->counters.pool_prefilled_tokens, 42U);
}

TEST_F(PoolEngineTest, AnUnusedPoolIsEvictedUnderPressureAndRebuiltOnUse) {
  MakePool(kPrefix, "p");
  Handle big = Submit({.prompt = std::string(990, 'b'), .n_predict = 8});
  EXPECT_TRUE(Finish(big).finished.has_value());
  EXPECT_EQ(engine_->Snapshot()->pools[0].residency, "evicted");
  Handle handle = Submit({.prompt = kPrefix + "x", .attach = {.pool = "p"}});
  EXPECT_EQ(Finish(handle).finished->report.cache_n, 42);
  EXPECT_EQ(handle.answer.text, Alone(kPrefix + "x"));
}

TEST_F(PoolEngineTest, ReleaseWaitsForTheLastReferenceAndTheGrace) {
  MakePool(kPrefix, "p");
  MakePool(kPrefix);
  EXPECT_EQ(Change(ChangePool::Action::kRelease, "p").refs, 1);
  const PoolStatus status = Change(ChangePool::Action::kRelease, "p");
  EXPECT_TRUE(status.released);
  EXPECT_EQ(status.release_in_ms, 30'000);
  clock_.AdvanceUs(29'000'000);
  EXPECT_LT(Change(ChangePool::Action::kRelease, "p").release_in_ms, 2'000);  // no longer
  EXPECT_EQ(engine_->Snapshot()->pools.size(), 1U);
  clock_.AdvanceUs(2'000'000);
  Step();
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(PoolEngineTest, CreatingAgainDuringTheGraceKeepsThePool) {
  const PoolCreated first = MakePool(kPrefix);
  Change(ChangePool::Action::kRelease, std::to_string(first.pool_id));
  EXPECT_EQ(MakePool(kPrefix).pool_id, first.pool_id);
  clock_.AdvanceUs(60'000'000);
  Step();
  EXPECT_EQ(engine_->Snapshot()->pools.size(), 1U);
}

TEST_F(PoolEngineTest, SessionsOfAReleasedPoolGoOnUndisturbed) {
  const PoolCreated pool = MakePool(kPrefix);
  Handle handle = Submit({.prompt = kPrefix + "x", .n_predict = 80, .attach = To(pool)});
  Step(10);
  EXPECT_TRUE(Change(ChangePool::Action::kRelease, std::to_string(pool.pool_id), true).released);
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
  EXPECT_GE(backend_->CellsUsed(), 42);
  EXPECT_EQ(Finish(handle).text, Alone(kPrefix + "x", 80));
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(PoolEngineTest, APinHoldsAPoolWithoutReferencesUntilItsTimeIsUp) {
  MakePool(kPrefix, "p");
  ChangePool pin{.action = ChangePool::Action::kPin, .pool = "p", .ttl_ms = 60'000};
  engine_->Post(std::move(pin));
  Change(ChangePool::Action::kRelease, "p");
  clock_.AdvanceUs(50'000'000);
  Step();
  EXPECT_EQ(engine_->Snapshot()->pools.size(), 1U);
  EXPECT_TRUE(engine_->Snapshot()->pools[0].orphaned_pin);
  clock_.AdvanceUs(11'000'000);
  Step();
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
}

TEST_F(PoolEngineTest, ANameIsUnique) {
  MakePool(kPrefix, "p");
  const PoolChannel channel = PostPool("other tokens", "p");
  Step();
  const auto result = Take(channel);
  EXPECT_EQ(result->problem().status, 409);
  EXPECT_EQ(MakePool(kPrefix, "second name").pool_id, engine_->Snapshot()->pools[0].pool_id);
  Handle handle = Submit({.prompt = kPrefix + "x", .attach = {.pool = "second name"}});
  EXPECT_EQ(Finish(handle).finished->report.cache_n, 42);
}

TEST_F(PoolEngineTest, WithoutACellOrASequenceACreateChangesNothing) {
  MakePool(std::string(600, 'a'), "big");
  Change(ChangePool::Action::kPin, "big");
  const PoolChannel no_cells = PostPool(std::string(500, 'b'));
  Step();
  EXPECT_EQ(Take(no_cells)->problem().type, "no_free_cells");
  for (const char* name : {"p1", "p2", "p3"}) {
    MakePool(name, name);
    Change(ChangePool::Action::kPin, name);
  }
  const PoolChannel no_sequence = PostPool("p4");
  Step();
  const auto result = Take(no_sequence);
  EXPECT_EQ(result->problem().type, "no_free_sequence");
  EXPECT_EQ(result->problem().status, 503);
  EXPECT_TRUE(result->problem().retry_after_s.has_value());
  EXPECT_EQ(engine_->Snapshot()->pools.size(), 4U);
}

TEST_F(PoolEngineTest, AMaterializationWhoseLastWaiterIsGoneLeavesNothing) {
  Build(DefaultConfig(), {.n_ctx = 1024, .n_ubatch = 64});
  const PoolChannel first = PostPool(std::string(600, 'z'));
  const PoolChannel second = PostPool(std::string(600, 'z'));
  Step(2);
  first->Cancel();
  Step();
  EXPECT_EQ(engine_->Snapshot()->pools[0].refs, 1);
  EXPECT_EQ(backend_->CellsUsed(), 3 * 64);
  second->Cancel();
  Step();
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
  EXPECT_EQ(backend_->CellsUsed(), 0);
  EXPECT_EQ(engine_->Snapshot()->seq_ids_used, 4);
}

TEST_F(PoolEngineTest, AFailedMaterializationAnswersItsWaitersAndLeavesNothing) {
  Handle other = Submit({.prompt = "other", .n_predict = 40});
  Step(2);
  backend_->FailSequence(4);  // the first pool sequence
  const PoolChannel channel = PostPool(kPrefix);
  Step();
  EXPECT_EQ(Take(channel)->problem().status, 500);
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
  EXPECT_EQ(Finish(other).text, Alone("other", 40));
}

TEST_F(PoolEngineTest, ASessionMovesToAnotherPool) {
  const PoolCreated a = MakePool(kPrefix + "tools A; ");
  const PoolCreated b = MakePool(kPrefix + "tools B; ");
  AttachSpec attach = To(a);
  attach.session_id = "s";
  Handle first = Submit({.prompt = kPrefix + "tools A; go", .attach = attach});
  EXPECT_EQ(Finish(first).finished->report.cache_n, 51);
  attach.pool = std::to_string(b.pool_id);
  Handle second = Submit({.prompt = kPrefix + "tools B; go", .attach = attach});
  EXPECT_EQ(Finish(second).finished->report.cache_n, 51);
  EXPECT_EQ(second.answer.text, Alone(kPrefix + "tools B; go"));
  EXPECT_EQ(engine_->Snapshot()->pools[0].sessions.size(), 0U);
  EXPECT_EQ(engine_->Snapshot()->pools[1].sessions.size(), 1U);
}

}  // namespace
}  // namespace polykv
