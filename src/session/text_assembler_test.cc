#include "session/text_assembler.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

struct Fed {
  std::string sent;
  bool ended = false;
};

Fed Feed(TextAssembler& text, const std::vector<std::string>& pieces) {
  Fed run;
  int32_t n = 0;
  for (const std::string& piece : pieces) {
    const auto outcome = text.Accept(piece, {.n_generated = ++n});
    run.sent += outcome.to_send;
    run.ended = outcome.ended;
    if (run.ended) break;
  }
  return run;
}

TEST(CompleteUtf8Length, LeavesOutACharacterThatIsCut) {
  EXPECT_EQ(CompleteUtf8Length("abc"), 3U);
  EXPECT_EQ(CompleteUtf8Length("a\xC3"), 1U);  // ü, first of 2
  EXPECT_EQ(CompleteUtf8Length("a\xC3\xBC"), 3U);
  EXPECT_EQ(CompleteUtf8Length("\xE2\x82"), 0U);      // €, 2 of 3
  EXPECT_EQ(CompleteUtf8Length("\xF0\x9F\x98"), 0U);  // 😀, 3 of 4
  EXPECT_EQ(CompleteUtf8Length("\xF0\x9F\x98\x80"), 4U);
  EXPECT_EQ(CompleteUtf8Length(""), 0U);
}

TEST(TextAssembler, NeverSendsHalfACharacter) {
  TextAssembler text({});
  const auto first = text.Accept("\xE2\x82", {.n_generated = 1});
  EXPECT_FALSE(first.delivered);
  EXPECT_EQ(first.to_send, "");
  const auto second = text.Accept("\xAC!", {.n_generated = 2});
  EXPECT_TRUE(second.delivered);
  EXPECT_EQ(second.to_send, "\xE2\x82\xAC!");
}

TEST(TextAssembler, FindsAStopWordAcrossTokenBorders) {
  TextAssembler text({.stop_words = {"END"}});
  const Fed run = Feed(text, {"one ", "E", "N", "D two"});
  EXPECT_TRUE(run.ended);
  EXPECT_EQ(run.sent, "one ");
  EXPECT_EQ(text.text(), "one ");
  EXPECT_EQ(text.stop(), StopKind::kStopWord);
  EXPECT_EQ(text.stopping_word(), "END");
}

TEST(TextAssembler, SendsWhatWasHeldBackWhenTheStopWordDoesNotCome) {
  TextAssembler text({.stop_words = {"END"}});
  const Fed run = Feed(text, {"one E", "N", "T"});
  EXPECT_FALSE(run.ended);
  EXPECT_EQ(run.sent, "one ENT");
}

TEST(TextAssembler, TheEarliestOfSeveralStopWordsWins) {
  TextAssembler text({.stop_words = {"zz", "b"}});
  const Fed run = Feed(text, {"abzz"});
  EXPECT_EQ(run.sent, "a");
  EXPECT_EQ(text.stopping_word(), "b");
}

TEST(TextAssembler, EndsAtTheTokenLimitAndDeliversTheLastToken) {
  TextAssembler text({.n_predict = 2});
  const Fed run = Feed(text, {"a", "b", "c"});
  EXPECT_EQ(run.sent, "ab");
  EXPECT_EQ(text.stop(), StopKind::kLimit);
  EXPECT_FALSE(text.truncated());
}

TEST(TextAssembler, AFullContextTruncates) {
  TextAssembler text({});
  const auto outcome = text.Accept("a", {.context_full = true, .n_generated = 1});
  EXPECT_TRUE(outcome.ended);
  EXPECT_EQ(outcome.to_send, "a");
  EXPECT_TRUE(text.truncated());
  EXPECT_EQ(text.stop(), StopKind::kLimit);
}

TEST(TextAssembler, TheModelsEndIsNamedEvenAtTheLimit) {
  TextAssembler text({.n_predict = 1});
  const auto outcome = text.Accept("", {.end_of_generation = true, .n_generated = 1});
  EXPECT_TRUE(outcome.ended);
  EXPECT_EQ(text.stop(), StopKind::kEndOfGeneration);
}

TEST(TextAssembler, HeldBackTextIsSentAtTheModelsEnd) {
  TextAssembler text({.stop_words = {"END"}});
  Feed(text, {"one E"});
  const auto outcome = text.Accept("", {.end_of_generation = true, .n_generated = 2});
  EXPECT_EQ(outcome.to_send, "one E");
}

TEST(TextAssembler, EndsAtALineWithTooLittleIndentation) {
  TextAssembler text({.n_indent = 2});
  const Fed run = Feed(text, {"if:", "\n", "    ", "x", "\n", " y", "more"});
  EXPECT_TRUE(run.ended);
  EXPECT_EQ(text.text(), "if:\n    x\n ");
}

TEST(TextAssembler, TheTimeLimitStrikesAtTheNextNewLine) {
  TextAssembler text({.max_predict_ms = 100});
  EXPECT_FALSE(text.Accept("a\n", {.n_generated = 1, .predict_ms = 50}).ended);
  EXPECT_FALSE(text.Accept("b", {.n_generated = 2, .predict_ms = 150}).ended);
  EXPECT_TRUE(text.Accept("\n", {.n_generated = 3, .predict_ms = 160}).ended);
}

}  // namespace
}  // namespace polykv
