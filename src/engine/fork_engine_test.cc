// Forks: extend, branch, append, snapshots of sessions, and what becomes of a tree.
#include "engine/engine_test_support.h"

namespace polykv {
namespace {

class ForkEngineTest : public EngineTest {
 protected:
  Result<PoolCreated> TryCreate(CreatePool command) {
    auto channel = command.channel;
    engine_->Post(std::move(command));
    RunAll();
    auto answer = Take(channel);
    EXPECT_TRUE(answer.has_value());
    return *answer;
  }
  Result<PoolCreated> TryFork(const PoolCreated& parent, const std::string& text,
                              std::optional<int32_t> branch_pos = {}) {
    return TryCreate({.parent = std::to_string(parent.pool_id),
                      .branch_pos = branch_pos,
                      .tokens = Tokens(text)});
  }
  PoolChannel PostFork(const std::string& parent, const std::string& text) {
    CreatePool command{.parent = parent, .tokens = Tokens(text)};
    PoolChannel channel = command.channel;
    engine_->Post(std::move(command));
    return channel;
  }
  PoolCreated Fork(const PoolCreated& parent, const std::string& text,
                   std::optional<int32_t> branch_pos = {}) {
    return TryFork(parent, text, branch_pos).value();
  }
  Result<PoolStatus> TryChange(ChangePool command) {
    auto channel = command.channel;
    engine_->Post(std::move(command));
    engine_->RunOneStep();
    Check();
    return *channel->Next(std::chrono::milliseconds(0));
  }
  PoolStatus Do(ChangePool command) { return TryChange(std::move(command)).value(); }
  static std::string Name(const PoolCreated& pool) { return std::to_string(pool.pool_id); }
  PoolView View(const PoolCreated& pool) const {
    for (const PoolView& view : engine_->Snapshot()->pools) {
      if (view.pool_id == pool.pool_id) return view;
    }
    ADD_FAILURE() << "no pool " << pool.pool_id;
    return {};
  }
  // A request on the pool gives what it gives alone, and takes `cache_n` tokens over.
  void ExpectExact(const PoolCreated& pool, const std::string& prompt, int32_t cache_n) {
    Handle handle = Submit({.prompt = prompt, .attach = {.pool = Name(pool)}});
    const Answer& answer = Finish(handle);
    ASSERT_TRUE(answer.finished.has_value()) << answer.problem->message;
    EXPECT_EQ(answer.text, Alone(prompt));
    EXPECT_EQ(answer.finished->report.cache_n, cache_n);
  }

  const std::string system_ = "a system prompt for every agent; ";  // 33 tokens
  const std::string tools_ = "and some tools; ";                    // 16
};

TEST_F(ForkEngineTest, ExtendAndBranchComputeOnlyWhatIsNew) {
  const PoolCreated root = MakePool(system_ + tools_);
  const PoolCreated extended = Fork(root, system_ + tools_ + "more");
  EXPECT_EQ(extended.parent, root.pool_id);
  EXPECT_EQ(extended.branch_pos, 49);
  EXPECT_EQ(extended.shared_len, 49);
  EXPECT_EQ(extended.n_prefilled, 4);
  EXPECT_EQ(extended.own_kv_bytes, 4 * 1024);
  const PoolCreated branch = Fork(root, system_ + "other tools");
  EXPECT_EQ(branch.branch_pos, 33);
  EXPECT_EQ(branch.n_prefilled, 11);
  EXPECT_EQ(backend_->n_decoded_tokens(), 49U + 4 + 11);
  EXPECT_EQ(backend_->CellsUsed(), 49 + 4 + 11);
  ExpectExact(root, system_ + tools_ + "x", 49);
  ExpectExact(extended, system_ + tools_ + "more x", 53);
  ExpectExact(branch, system_ + "other tools x", 44);
  EXPECT_EQ(engine_->Snapshot()->tree_depth, 2);
  EXPECT_EQ(View(root).children, (std::vector<PoolId>{extended.pool_id, branch.pool_id}));
  EXPECT_EQ(View(root).subtree_cells, 49 + 4 + 11);
}

TEST_F(ForkEngineTest, AChainOfFiveSharesAtEveryLevel) {
  std::string text = system_;
  PoolCreated pool = MakePool(text);
  for (int i = 0; i < 3; ++i) {
    text += "level " + std::to_string(i) + "; ";
    pool = Fork(pool, text);
    EXPECT_EQ(pool.n_prefilled, 9);
  }
  EXPECT_EQ(engine_->Snapshot()->tree_depth, 4);
  ExpectExact(pool, text + "question", static_cast<int32_t>(text.size()));
}

TEST_F(ForkEngineTest, AppendedTokensStandBehindTheParents) {
  const PoolCreated root = MakePool(system_);
  const PoolCreated whole =
      TryCreate({.parent = Name(root), .tokens = Tokens("tail"), .append = true}).value();
  EXPECT_EQ(whole.prefix_len, 37);
  const PoolCreated part =
      TryCreate({.parent = Name(root), .branch_pos = 8, .tokens = Tokens("tail"), .append = true})
          .value();
  EXPECT_EQ(part.prefix_len, 12);
  EXPECT_EQ(part.n_prefilled, 4);
  ExpectExact(part, system_.substr(0, 8) + "tail!", 12);
}

TEST_F(ForkEngineTest, BadForksChangeNothing) {
  const PoolCreated root = MakePool(system_);
  const auto wrong = TryFork(root, "a system promise", 20);
  EXPECT_EQ(wrong.problem().status, 409);
  EXPECT_EQ(wrong.problem().mismatch_pos, 13);
  EXPECT_EQ(TryFork(root, system_, 34).problem().status, 400);
  EXPECT_EQ(TryCreate({.parent = "17", .tokens = Tokens("x")}).problem().status, 404);
  EXPECT_EQ(TryCreate({.from_session = "nobody"}).problem().status, 404);
  EXPECT_EQ(engine_->Snapshot()->pools.size(), 1U);
  EXPECT_EQ(engine_->Snapshot()->pools[0].refs, 1);
  EXPECT_EQ(backend_->CellsUsed(), 33);
}

TEST_F(ForkEngineTest, AnEqualForkIsTheSamePool) {
  const PoolCreated root = MakePool(system_);
  const PoolCreated first = Fork(root, system_ + "a");
  const PoolCreated second = Fork(root, system_ + "a");
  EXPECT_FALSE(second.created);
  EXPECT_EQ(second.pool_id, first.pool_id);
  EXPECT_NE(MakePool(system_ + "a").pool_id, first.pool_id) << "a root is not a fork";
}

TEST_F(ForkEngineTest, AForkOfAPoolOnItsWayWaitsForIt) {
  const std::string prefix(500, 'p');
  const PoolChannel parent = PostPool(prefix, "parent", /*wait=*/false);
  const PoolChannel child = PostFork("parent", prefix + "child");
  Step();
  EXPECT_FALSE(Take(child).has_value());
  RunAll();
  EXPECT_EQ(Take(child)->value().n_prefilled, 5);
  EXPECT_EQ(backend_->n_decoded_tokens(), 505U);
}

TEST_F(ForkEngineTest, AForkThatWaitsKeepsItsParentComing) {
  const std::string prefix(900, 'p');
  const PoolChannel parent = PostPool(prefix, "parent");
  const PoolChannel child = PostFork("parent", prefix + "child");
  Step();
  parent->Cancel();
  RunAll();
  EXPECT_TRUE(Take(child)->ok());
}

TEST_F(ForkEngineTest, AParentThatFailsTakesItsWaitingForksAlong) {
  const std::string prefix(900, 'p');
  const PoolChannel parent = PostPool(prefix, "parent");
  const PoolChannel child = PostFork("parent", prefix + "child");
  backend_->FailSequence(4);  // the first pool's
  RunAll();
  EXPECT_EQ(Take(parent)->problem().status, 500);
  EXPECT_EQ(Take(child)->problem().status, 500);
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ForkEngineTest, ASnapshotTakesASessionThatDecodes) {
  const PoolCreated root = MakePool(system_);
  Handle talk = Submit({.prompt = system_ + "main",
                        .n_predict = 60,
                        .attach = {.pool = Name(root), .session_id = "main"}});
  Step(20);
  const uint64_t n_decoded = backend_->n_decoded_tokens();
  const int32_t n_cells = backend_->CellsUsed();
  CreatePool command{.from_session = "main"};
  const auto channel = command.channel;
  engine_->Post(std::move(command));
  Step();
  const PoolCreated snapshot = Take(channel)->value();
  EXPECT_EQ(snapshot.parent, kNoPool);
  EXPECT_EQ(snapshot.n_prefilled, 0);
  EXPECT_GT(snapshot.prefix_len, 37 + 10);
  EXPECT_EQ(backend_->n_decoded_tokens(), n_decoded + 1) << "one step, nothing computed again";
  EXPECT_EQ(backend_->CellsUsed(), n_cells + 1);
  EXPECT_EQ(Finish(talk).text, Alone(system_ + "main", 60));
  const std::string all = system_ + "main" + Alone(system_ + "main", 60);
  const std::string prefix = all.substr(0, static_cast<size_t>(snapshot.prefix_len));
  ExpectExact(snapshot, prefix + "?", snapshot.prefix_len);
  engine_->Post(EndSessions{.session_id = "main"});
  Step();
  ExpectExact(snapshot, prefix + "!", snapshot.prefix_len);
  const PoolCreated fork =
      TryCreate({.parent = Name(snapshot), .tokens = Tokens("sub"), .append = true}).value();
  ExpectExact(fork, prefix + "sub agent", snapshot.prefix_len + 3);
}

TEST_F(ForkEngineTest, ASnapshotBringsACooledSessionBack) {
  EngineConfig config = DefaultConfig();
  config.host_bytes = 1 << 20;
  config.session_hot_ms = 100;
  Build(config);
  const PoolCreated root = MakePool(system_);
  Handle talk = Submit({.prompt = system_ + "main",
                        .n_predict = 8,
                        .attach = {.pool = Name(root), .session_id = "main"}});
  Finish(talk);
  Handle other = Submit({.prompt = "other", .n_predict = 200});
  Step(2);
  clock_.AdvanceUs(500'000);
  Step(2);
  ASSERT_EQ(engine_->Snapshot()->host_sessions, 1) << "it was idle while another decoded";
  const PoolCreated snapshot = TryCreate({.from_session = "main"}).value();
  EXPECT_EQ(snapshot.prefix_len, 37 + 7);
  EXPECT_EQ(snapshot.n_prefilled, 0);
  EXPECT_EQ(engine_->Snapshot()->host_sessions, 0);
  const std::string prefix = system_ + "main" + Alone(system_ + "main", 7);
  ExpectExact(snapshot, prefix + "?", snapshot.prefix_len);
}

TEST_F(ForkEngineTest, ASnapshotUnderAParentIsItsFork) {
  const PoolCreated root = MakePool(system_);
  Handle talk = Submit({.prompt = system_ + "main",
                        .n_predict = 4,
                        .attach = {.pool = Name(root), .session_id = "main"}});
  Finish(talk);
  const PoolCreated fork = TryCreate({.parent = Name(root), .from_session = "main"}).value();
  EXPECT_EQ(fork.parent, root.pool_id);
  EXPECT_EQ(fork.branch_pos, 33);
  EXPECT_EQ(fork.shared_len, 33);
  EXPECT_EQ(View(root).auto_pinned, true);
}

TEST_F(ForkEngineTest, AnEvictedPoolComesBackInEachWay) {
  const PoolCreated root = MakePool(system_ + tools_);
  const PoolCreated child = Fork(root, system_ + "child");
  ASSERT_TRUE(TryChange({.action = ChangePool::Action::kEvict, .pool = Name(root)}).ok());
  EXPECT_EQ(View(root).residency, "evicted");
  EXPECT_EQ(backend_->CellsUsed(), 33 + 5) << "what the child holds stays";
  const uint64_t before = backend_->n_decoded_tokens();
  ExpectExact(root, system_ + tools_ + "x", 49);
  EXPECT_EQ(backend_->n_decoded_tokens() - before, 16U + 16) << "33 came from the child";
  EXPECT_EQ(backend_->CellsUsed(), 49 + 5);
  for (const PoolCreated& pool : {child, root}) {
    Do({.action = ChangePool::Action::kEvict, .pool = Name(pool)});
  }
  EXPECT_EQ(backend_->CellsUsed(), 0);
  ExpectExact(child, system_ + "child x", 38);
  EXPECT_EQ(View(root).residency, "resident") << "the child's cells begin with its parent's";
}

TEST_F(ForkEngineTest, AnEvictedPoolRegainsWhatItsSessionsHold) {
  const PoolCreated root = MakePool(system_);
  Handle talk = Submit({.prompt = system_ + "main",
                        .n_predict = 300,
                        .attach = {.pool = Name(root), .session_id = "main"}});
  Step(5);
  ASSERT_TRUE(TryChange({.action = ChangePool::Action::kEvict, .pool = Name(root)}).ok());
  Handle other = Submit({.prompt = system_ + "other", .attach = {.pool = Name(root)}});
  EXPECT_EQ(Finish(other).finished->report.cache_n, 33);
  EXPECT_EQ(other.answer.text, Alone(system_ + "other"));
  EXPECT_EQ(Finish(talk).text, Alone(system_ + "main", 300));
}

TEST_F(ForkEngineTest, PinnedPoolsStayAndFlushTakesTheRest) {
  const PoolCreated root = MakePool(system_);
  const PoolCreated a = Fork(root, system_ + "a");
  const PoolCreated b = Fork(root, system_ + "b");
  Do({.action = ChangePool::Action::kPin, .pool = Name(a), .pin_key = "one"});
  Do({.action = ChangePool::Action::kPin, .pool = Name(a), .pin_key = "two"});
  EXPECT_EQ(TryChange({.action = ChangePool::Action::kEvict, .pool = Name(a)}).problem().status,
            409);
  EXPECT_TRUE(View(a).orphaned_pin);
  EXPECT_FALSE(View(root).orphaned_pin);
  const auto flush = TryChange({.action = ChangePool::Action::kFlush, .pool = Name(root)});
  EXPECT_EQ(flush.value().n_evicted, 1) << "only b: the root is a's";
  EXPECT_EQ(View(b).residency, "evicted");
  Do({.action = ChangePool::Action::kUnpin, .pool = Name(a), .pin_key = "one"});
  EXPECT_TRUE(View(a).pinned);
  Do({.action = ChangePool::Action::kUnpin, .pool = Name(a), .pin_key = "two"});
  EXPECT_FALSE(View(a).pinned);
  EXPECT_EQ(Do({.action = ChangePool::Action::kFlush, .pool = Name(root)}).n_evicted, 2);
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ForkEngineTest, AParentIsReleasedAfterItsChildren) {
  const PoolCreated root = MakePool(system_);
  const PoolCreated child = Fork(root, system_ + "a");
  const auto refused =
      TryChange({.action = ChangePool::Action::kRelease, .pool = Name(root), .force = true});
  EXPECT_EQ(refused.problem().status, 409);
  EXPECT_EQ(refused.problem().type, "pool_has_children");
  Handle talk = Submit({.prompt = system_ + "a main",
                        .n_predict = 40,
                        .attach = {.pool = Name(child), .session_id = "main"}});
  Step(3);
  ASSERT_TRUE(TryChange({.action = ChangePool::Action::kRelease,
                         .pool = Name(root),
                         .subtree = true,
                         .force = true})
                  .ok());
  EXPECT_TRUE(engine_->Snapshot()->pools.empty());
  EXPECT_EQ(Finish(talk).text, Alone(system_ + "a main", 40));
  engine_->Post(EndSessions{});
  Step();
  EXPECT_EQ(backend_->CellsUsed(), 0);
}

TEST_F(ForkEngineTest, ASharedPoolStaysForThoseWhoHoldAReference) {
  const PoolCreated root = MakePool(system_);
  MakePool(system_);
  const PoolCreated child = Fork(root, system_ + "a");
  Do({.action = ChangePool::Action::kRelease, .pool = Name(root), .subtree = true, .force = true});
  EXPECT_EQ(View(root).refs, 1);
  clock_.AdvanceUs(100'000'000);
  Step();
  EXPECT_EQ(View(root).residency, "resident");
  EXPECT_EQ(engine_->Snapshot()->pools.size(), 1U) << "the child " << child.pool_id << " is gone";
}

TEST_F(ForkEngineTest, AnotherSlotsTokensCanBeShared) {
  Handle main = Submit({.prompt = system_ + "main", .n_predict = 40, .id_slot = 2});
  Step(5);
  const uint64_t before = backend_->n_decoded_tokens();
  Handle other = Submit({.prompt = system_ + "other",
                         .n_predict = 8,
                         .attach = {.shared_pool_slot = 2, .shared_prefix_n_tokens = 33}});
  Finish(other);
  EXPECT_EQ(other.answer.finished->report.cache_n, 33);
  EXPECT_EQ(other.answer.text, Alone(system_ + "other", 8));
  EXPECT_EQ(Finish(main).text, Alone(system_ + "main", 40));
  EXPECT_EQ(backend_->n_decoded_tokens() - before, 5U + 7 + 35);
  Handle wrong = Submit({.prompt = "something else",
                         .attach = {.shared_pool_slot = 2, .shared_prefix_n_tokens = 20}});
  EXPECT_EQ(Finish(wrong).problem->status, 400);
  Handle far = Submit({.prompt = "x", .attach = {.shared_pool_slot = 4}});
  EXPECT_EQ(Finish(far).problem->status, 400);
}

}  // namespace
}  // namespace polykv
