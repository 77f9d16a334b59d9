// Whatever way a session's prefix came about - computed as a pool, extended, branched off, cloned
// from a session that decodes, rebuilt after eviction, parked and resumed - it must go on as if all
// had been computed in one piece: on every kind of memory, in both layouts. And each case must have
// shared, or must have fallen back to computing, where the rule says so.
//
// Compared are next-token distributions behind the first tokens of a question. How much of a
// difference is one, and why mistakes are looked for in 32-bit arithmetic:
// pool_equivalence_test.cc.
//
// A model with the weights of few bits gets two kinds of run: as it is served, where the bound is
// twice what the size of chunks changes in a plain prefill, and in 32-bit floats, where a share of
// one token too many, one too few or with the wrong state must exceed the bound five times. With
// POLYKV_FULL_EQUIVALENCE set all prompts and all runs are measured, for the better part of an
// hour; else a few.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "integration/chunked_decode.h"
#include "integration/distribution.h"
#include "integration/prompts.h"
#include "integration/real_cells.h"
#include "integration/test_model.h"
#include "pool/share_rule.h"

namespace polykv {
namespace {

using Tokens = std::vector<Token>;

constexpr double kFloor = 1e-3;       // nats; less is no difference
constexpr double kClearMargin = 0.1;  // nats between the top two, above which top-1 must agree
constexpr double kAllowance = 2;      // times what other chunks of plain prefill change
constexpr double kMistakeFactor = 5;  // by which a wrong share must exceed the bound
constexpr std::array<size_t, 5> kChunks = {100, 64, 48, 37, 24};
constexpr size_t kAnswers = 8;       // at most, to the first tokens of a question
constexpr size_t kBranch = 16;       // tokens of a branch's own
constexpr size_t kLevels = 5;        // of a chain
constexpr size_t kTurn = 6;          // tokens that a session has computed behind its pool
constexpr size_t kStride = 800;      // tokens of text from one prompt to the next
constexpr int32_t kMaxPrefix = 450;  // fits into a sequence of the split cache

constexpr SeqId kPlain = 0;
constexpr SeqId kPool = 1;
constexpr SeqId kChild = 2;
constexpr SeqId kSession = 3;
constexpr SeqId kOther = 4;
constexpr SeqId kScratch = 5;
constexpr SeqId kChain = 6;
constexpr int32_t kSequences = 12;

bool IsFull() { return std::getenv("POLYKV_FULL_EQUIVALENCE") != nullptr; }

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Tokens First(const Tokens& tokens, size_t n) {
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}

Pos Length(const Tokens& tokens) { return static_cast<Pos>(tokens.size()); }

// One way to the prefix and what came of it.
struct Case {
  std::string name;
  bool shared;  // else computed
  Difference difference;
};

struct Mistake {
  const char* name;
  double divergence;
};

struct Report {
  std::vector<Case> cases;
  std::vector<Mistake> mistakes;
  Difference noise;  // what chunks change in a plain prefill

  void Print(const std::string& title) const {
    std::printf("%s: KLD in nats, worst of the answers; flip: margin of a top-1 that differs\n",
                title.c_str());
    std::printf("  %-28s %-8s %9.2e %6.3f\n", "plain, in chunks", "", noise.divergence,
                noise.flipped_margin);
    for (const Case& one : cases) {
      std::printf("  %-28s %-8s %9.2e %6.3f\n", one.name.c_str(),
                  one.shared ? "shared" : "computed", one.difference.divergence,
                  one.difference.flipped_margin);
    }
    for (const Mistake& mistake : mistakes) {
      std::printf("  %-28s %-8s %9.2e\n", mistake.name, "wrong", mistake.divergence);
    }
    std::fflush(stdout);
  }
};

class ForkEquivalence {
 public:
  explicit ForkEquivalence(const TestModelOptions& options)
      : backend_(LoadTestModel(options)),
        text_(DocumentTokens(*backend_, 0, kPrompts.size() * kStride)) {}

  const ModelInfo& info() const { return backend_->info(); }

  Report Measure(size_t prompt, std::span<const size_t> chunks, bool with_mistakes) {
    const auto n_prefix = static_cast<size_t>(kPrompts[prompt].n_prefix);
    const auto passage = text_.begin() + static_cast<std::ptrdiff_t>(prompt * kStride);
    prefix_.assign(passage, passage + static_cast<std::ptrdiff_t>(n_prefix));
    other_.assign(passage + 500, passage + 500 + kBranch);
    question_ = backend_->Tokenize(std::string("\n\n") + kPrompts[prompt].question, false, false);
    question_.resize(std::min(question_.size(), kAnswers));
    report_ = {};
    chunks_ = chunks;
    reference_ = Reference(prefix_);
    Fill(kPool, {}, prefix_);
    Add("root", Share(kPool, prefix_, kSession, prefix_.size()), kSession, prefix_, reference_);
    Extend();
    for (const size_t d : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65},
                           prefix_.size() - 1, prefix_.size()}) {
      if (d <= prefix_.size()) Branch(d);
    }
    Chain();
    Snapshot();
    Park();
    Rebuild();
    if (with_mistakes) MakeMistakes();
    Clear();
    EXPECT_EQ(ReadRealCells(*backend_).used, 0);
    return report_;
  }

 private:
  void Extend() {
    const size_t half = prefix_.size() / 2;
    Fill(kChild, {}, First(prefix_, half));
    const bool shared = Share(kChild, First(prefix_, half), kOther, half);
    Fill(kOther, shared ? First(prefix_, half) : Tokens(), prefix_);
    const bool attached = Share(kOther, prefix_, kSession, prefix_.size());
    Add("extend", shared && attached, kSession, prefix_, reference_);
  }

  void Branch(size_t d) {
    const Tokens child = First(prefix_, d) + other_;
    const bool shared = Share(kPool, prefix_, kChild, d);
    Fill(kChild, shared ? First(prefix_, d) : Tokens(), child);
    EXPECT_TRUE(Share(kChild, child, kSession, child.size()));
    const std::string name = "branch at " + (d == prefix_.size()       ? "L"
                                             : d + 1 == prefix_.size() ? "L-1"
                                                                       : std::to_string(d));
    Add(name, shared, kSession, child, Reference(child));
  }

  void Chain() {
    bool shared = true;
    Tokens below;
    for (size_t level = 1; level <= kLevels; ++level) {
      const Tokens tokens = First(prefix_, prefix_.size() * level / kLevels);
      const auto seq = kChain + static_cast<SeqId>(level);
      if (level > 1) shared = Share(seq - 1, below, seq, below.size()) && shared;
      Fill(seq, below, tokens);
      below = tokens;
    }
    shared = Share(kChain + kLevels, prefix_, kSession, prefix_.size()) && shared;
    Add("chain of 5", shared, kSession, prefix_, reference_);
    for (size_t level = 1; level <= kLevels; ++level) Clear(kChain + static_cast<SeqId>(level));
  }

  // A pool made of a session that goes on.
  void Snapshot() {
    const Tokens so_far = prefix_ + First(other_, kTurn);
    EXPECT_TRUE(Share(kPool, prefix_, kOther, prefix_.size()));
    Fill(kOther, prefix_, so_far);
    Clear(kChild);
    backend_->CloneSequence(kOther, kChild);
    Fill(kOther, so_far, so_far + other_);
    const bool shared = Share(kChild, so_far, kSession, so_far.size());
    Add("from a session", shared, kSession, so_far, Reference(so_far));
  }

  void Park() {
    const Tokens so_far = prefix_ + First(other_, kTurn);
    EXPECT_TRUE(Share(kPool, prefix_, kOther, prefix_.size()));
    Fill(kOther, prefix_, so_far);
    const Pos length = Length(prefix_);
    // In a split cache all of it is private.
    const SeqId parked = info().unified ? kScratch : kOther;
    if (info().unified) backend_->ShareRange(kOther, kScratch, length, kToEnd);
    const std::vector<uint8_t> bytes = Save(parked);
    Clear(kScratch);
    Clear(kOther);
    Fill(kChild, {}, other_);  // somebody else goes on meanwhile
    Load(parked, bytes);
    if (info().unified) {
      backend_->ShareRange(kPool, kOther, 0, length);
      backend_->ShareRange(kScratch, kOther, length, kToEnd);
    }
    Add("parked and resumed", true, kOther, so_far, Reference(so_far));
    Clear(kScratch);
  }

  void Rebuild() {
    const Tokens longer = prefix_ + other_;
    EXPECT_TRUE(Share(kPool, prefix_, kChild, prefix_.size()));
    Fill(kChild, prefix_, longer);
    const std::vector<uint8_t> bytes = Save(kPool);
    Clear(kPool);
    const bool shared = Share(kChild, longer, kPool, prefix_.size());
    if (!shared) Fill(kPool, {}, prefix_);
    AddRebuilt("rebuilt from a descendant", shared);
    Load(kPool, bytes);
    AddRebuilt("rebuilt from the host", true);
    Fill(kPool, {}, prefix_);
    AddRebuilt("rebuilt by a prefill", true);
  }

  void AddRebuilt(const char* name, bool shared) {
    const bool attached = Share(kPool, prefix_, kSession, prefix_.size());
    Add(name, shared && attached, kSession, prefix_, reference_);
    Clear(kPool);
  }

  void MakeMistakes() {
    // The pool goes on with text where the prompt turns to its question.
    const Tokens longer = prefix_ + Tokens{other_[0] != question_[0] ? other_[0] : other_[1]};
    const Tokens shorter = First(prefix_, prefix_.size() - 1);
    AddMistake("one token too long", longer, longer);
    AddMistake("one token too short", shorter, shorter);
    if (info().sharing != Sharing::kAtTip) return;
    // The right cells, if any, with the state of another text.
    const Tokens wrong(text_.end() - Length(prefix_), text_.end());
    Fill(kOther, {}, wrong);
    std::vector<uint8_t> tip(backend_->StateSize(kOther, StateParts::kUnremovable));
    backend_->SaveState(kOther, StateParts::kUnremovable, tip);
    Fill(kPool, {}, prefix_);
    EXPECT_TRUE(Share(kPool, prefix_, kSession, prefix_.size()));
    EXPECT_TRUE(backend_->LoadState(kSession, StateParts::kUnremovable, tip));
    report_.mistakes.push_back(
        {"the wrong state", Compare(reference_, Ask(kSession, prefix_)).divergence});
  }

  void AddMistake(const char* name, const Tokens& pool, const Tokens& shared) {
    Fill(kPool, {}, pool);
    EXPECT_TRUE(Share(kPool, pool, kSession, shared.size()));
    report_.mistakes.push_back({name, Compare(reference_, Ask(kSession, shared)).divergence});
  }

  void Add(const std::string& name, bool shared, SeqId seq, const Tokens& prefix,
           const Answers& reference) {
    report_.cases.push_back({name, shared, Compare(reference, Ask(seq, prefix))});
  }

  // Makes `dst` hold the first `n` of the tokens of `src` alone, if the rule allows that.
  bool Share(SeqId src, const Tokens& tokens, SeqId dst, size_t n) {
    Clear(dst);
    const ShareVerdict verdict = ShareablePrefix({.sharing = info().sharing,
                                                  .n_swa = info().n_swa,
                                                  .length = Length(tokens),
                                                  .min_pos = backend_->MinPos(src)},
                                                 static_cast<Pos>(n), /*tokens_remain=*/true);
    if (verdict.length > 0) backend_->ShareRange(src, dst, 0, verdict.length);
    return verdict.length > 0;
  }

  // Computes what `seq`, which holds `held` (empty: it is cleared), lacks of `tokens`.
  void Fill(SeqId seq, const Tokens& held, const Tokens& tokens) {
    if (held.empty()) Clear(seq);
    Decode(seq, tokens, held.size(), tokens.size(), 0);
  }

  // What follows the question behind `prefix`, which `seq` holds; the sequence is empty afterwards.
  Answers Ask(SeqId seq, const Tokens& prefix) {
    Answers answers =
        Decode(seq, prefix + question_, prefix.size(), question_.size() + 1, kAnswers);
    Clear(seq);
    return answers;
  }

  // All in one piece. What other chunks of the same change is noise; over all prompts it is enough
  // to look at their own prefixes.
  Answers Reference(const Tokens& prefix) {
    const Answers reference = Plain(prefix, prefix.size() + question_.size());
    if (IsFull() && prefix != prefix_) return reference;
    for (const size_t chunk : chunks_) {
      if (chunk < prefix.size()) report_.noise.Add(Compare(reference, Plain(prefix, chunk)));
    }
    return reference;
  }

  Answers Plain(const Tokens& prefix, size_t chunk) {
    Answers answers = Decode(kPlain, prefix + question_, 0, chunk, kAnswers);
    Clear(kPlain);
    return answers;
  }

  // Tokens [from, size), at most `chunk` at a time; what follows the last `n_answers` of them.
  Answers Decode(SeqId seq, const Tokens& tokens, size_t from, size_t chunk, size_t n_answers) {
    return DecodeInChunks(*backend_, seq, std::span(tokens).subspan(from), static_cast<Pos>(from),
                          chunk, n_answers);
  }

  std::vector<uint8_t> Save(SeqId seq) const {
    std::vector<uint8_t> bytes(backend_->StateSize(seq, StateParts::kAll));
    backend_->SaveState(seq, StateParts::kAll, bytes);
    return bytes;
  }
  void Load(SeqId seq, const std::vector<uint8_t>& bytes) {
    EXPECT_TRUE(backend_->LoadState(seq, StateParts::kAll, bytes));
  }
  void Clear(SeqId seq) { EXPECT_TRUE(backend_->RemoveRange(seq, 0, kToEnd)); }
  void Clear() {
    for (SeqId seq = 0; seq < kSequences; ++seq) Clear(seq);
  }

  std::unique_ptr<LlamaBackend> backend_;
  Tokens text_;
  Tokens prefix_;    // of the prompt, without its question
  Tokens other_;     // what a branch goes on with
  Tokens question_;  // its first tokens
  Answers reference_;
  std::span<const size_t> chunks_;
  Report report_;
};

struct ModelSetup {
  const char* name;
  const char* architecture;  // of a tiny model, "smollm2", "gemma3-270m"
  bool unified;
  bool precise;       // in 32-bit floats
  int32_t n_prompts;  // unless all are measured; 0: none
  bool swa_full = false;
};

void PrintTo(const ModelSetup& setup, std::ostream* out) { *out << setup.name; }

TestModelOptions OptionsOf(const ModelSetup& setup) {
  TestModelOptions options;
  const std::string architecture = setup.architecture;
  if (architecture == "gemma3-270m") {
    options.path = WindowModelPath();
  } else if (architecture != "smollm2") {
    options.path = TinyModelPath(architecture);
  }
  options.n_ctx = setup.unified ? 4096 : kSequences * 512;
  options.n_parallel = kSequences;
  options.n_seq_max = kSequences;
  options.unified = setup.unified;
  options.swa_full = setup.swa_full;
  options.precise = setup.precise;
  return options;
}

// Whether the rule lets the case share. No window is narrower than these prompts but of a tiny
// model, where nobody takes cells of it.
bool ShouldShare(const Case& one, Sharing sharing) {
  if (one.name == "branch at 0") return false;
  if (sharing != Sharing::kAtTip) return true;
  return one.name != "rebuilt from a descendant" &&
         (!one.name.starts_with("branch") || one.name == "branch at L");
}

std::vector<size_t> AllPrompts() {
  std::vector<size_t> prompts;
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    if (kPrompts[i].n_prefix <= kMaxPrefix) prompts.push_back(i);
  }
  return prompts;
}

class ForkEquivalenceTest : public testing::TestWithParam<ModelSetup> {};

TEST_P(ForkEquivalenceTest, EveryWayToAPrefixIsTheSame) {
  const ModelSetup& setup = GetParam();
  std::vector<size_t> prompts = {3, 10};
  prompts.resize(static_cast<size_t>(setup.n_prompts));
  if (IsFull()) prompts = AllPrompts();
  if (prompts.empty()) GTEST_SKIP() << "set POLYKV_FULL_EQUIVALENCE";
  ForkEquivalence equivalence(OptionsOf(setup));
  std::vector<Report> reports;
  Difference noise;
  const auto chunks = std::span(kChunks).first(setup.precise ? 0 : IsFull() ? 5 : 3);
  for (const size_t prompt : prompts) {
    reports.push_back(equivalence.Measure(prompt, chunks, setup.precise));
    reports.back().Print(std::string(setup.name) + ", " +
                         std::to_string(kPrompts[prompt].n_prefix) + " tokens");
    noise.Add(reports.back().noise);
  }
  const double bound = std::max(kFloor, kAllowance * noise.divergence);
  for (const Report& report : reports) {
    for (const Case& one : report.cases) {
      SCOPED_TRACE(one.name);
      EXPECT_EQ(one.shared, ShouldShare(one, equivalence.info().sharing));
      EXPECT_LE(one.difference.divergence, bound);
      EXPECT_LE(one.difference.flipped_margin,
                std::max(kClearMargin, kAllowance * noise.flipped_margin));
    }
    for (const Mistake& mistake : report.mistakes) {
      EXPECT_GE(mistake.divergence, kMistakeFactor * bound) << mistake.name;
    }
  }
}

std::string NameOf(const testing::TestParamInfo<ModelSetup>& info) { return info.param.name; }

constexpr ModelSetup kTiny[] = {
    {"Gemma3Unified", "gemma3", true, true, 2}, {"Gemma3Split", "gemma3", false, true, 2},
    {"MambaUnified", "mamba", true, true, 2},   {"MambaSplit", "mamba", false, true, 2},
    {"JambaUnified", "jamba", true, true, 2},   {"JambaSplit", "jamba", false, true, 2},
    {"Lfm2Unified", "lfm2", true, true, 2},     {"Lfm2Split", "lfm2", false, true, 2},
};
constexpr ModelSetup kSmolLm2[] = {
    {"PreciseUnified", "smollm2", true, true, 1},
    {"PreciseSplit", "smollm2", false, true, 1},
    {"ServedUnified", "smollm2", true, false, 1},
    {"ServedSplit", "smollm2", false, false, 0},
};
constexpr ModelSetup kGemma270m[] = {
    {"PreciseUnified", "gemma3-270m", true, true, 1},
    {"PreciseSplit", "gemma3-270m", false, true, 1},
    {"PreciseUnifiedSwaFull", "gemma3-270m", true, true, 0, true},
    {"PreciseSplitSwaFull", "gemma3-270m", false, true, 0, true},
    {"ServedUnified", "gemma3-270m", true, false, 0},
    {"ServedSplit", "gemma3-270m", false, false, 0},
    {"ServedUnifiedSwaFull", "gemma3-270m", true, false, 0, true},
    {"ServedSplitSwaFull", "gemma3-270m", false, false, 0, true},
};

INSTANTIATE_TEST_SUITE_P(Tiny, ForkEquivalenceTest, testing::ValuesIn(kTiny), NameOf);
INSTANTIATE_TEST_SUITE_P(SmolLm2, ForkEquivalenceTest, testing::ValuesIn(kSmolLm2), NameOf);
INSTANTIATE_TEST_SUITE_P(Gemma270m, ForkEquivalenceTest, testing::ValuesIn(kGemma270m), NameOf);

}  // namespace
}  // namespace polykv
