#include "api/protocol/messages_prefix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "api/protocol/appended_messages.h"
#include "api/protocol/text_tools.h"
#include "api/protocol/vocabulary_test_support.h"
#include "common.h"

namespace polykv {
namespace {

class MessagesPrefixTest : public VocabularyTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(VocabularyTest::SetUp());
    params_.use_jinja = true;
    Serve();
  }

  void Serve() {
    Result<std::unique_ptr<ServedModel>> model =
        ServedModel::Make({.params = &params_, .model = vocabulary_.get(), .make_sampler = {}});
    ASSERT_TRUE(model.ok()) << model.problem().message;
    model_ = std::move(model.value());
  }

  // The prompt of a later request that begins with `messages`.
  std::vector<Token> Prompt(Json messages, const Json& next, bool generation_prompt = true) {
    if (!next.is_null()) messages.push_back(next);
    const Json body = {{"messages", messages}, {"add_generation_prompt", generation_prompt}};
    Result<std::string> rendered = ApplyTemplateBody(*model_, JsonText(body));
    EXPECT_TRUE(rendered.ok());
    return TokenizePrompt(*model_, Json::parse(rendered.value())["prompt"]).value();
  }

  void ExpectPrefixOf(const std::vector<Token>& prefix, const std::vector<Token>& prompt) {
    ASSERT_LE(prefix.size(), prompt.size());
    EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), prompt.begin()));
  }

  common_params params_;
  std::unique_ptr<ServedModel> model_;
};

TEST_F(MessagesPrefixTest, IsAPrefixOfWhateverFollows) {
  const Json messages = {{{"role", "system"}, {"content", "You know this: the sky is green."}}};
  Result<MessagesPrefix> prefix = ComputeMessagesPrefix(*model_, {{"messages", messages}});
  ASSERT_TRUE(prefix.ok()) << prefix.problem().message;
  EXPECT_FALSE(prefix.value().template_break.has_value());
  EXPECT_GT(prefix.value().tokens.size(), 10U);
  for (const char* text : {"hello", "\n\n\n", " spaced", "42", "<b>", "\xC3\xBC", "Why?"}) {
    ExpectPrefixOf(prefix.value().tokens, Prompt(messages, {{"role", "user"}, {"content", text}}));
  }
}

TEST_F(MessagesPrefixTest, HoldsWhenTheLastMessageIsTheUsers) {
  const Json messages = {{{"role", "system"}, {"content", "Be brief."}},
                         {{"role", "user"}, {"content", "A long document."}}};
  Result<MessagesPrefix> prefix = ComputeMessagesPrefix(*model_, {{"messages", messages}});
  ASSERT_TRUE(prefix.ok());
  EXPECT_FALSE(prefix.value().template_break.has_value());
  ExpectPrefixOf(prefix.value().tokens, Prompt(messages, nullptr));
  ExpectPrefixOf(prefix.value().tokens, Prompt(messages, {{"role", "user"}, {"content", "And?"}}));
}

TEST_F(MessagesPrefixTest, SaysWhereATemplateBreaks) {
  // The last message comes first.
  params_.chat_template =
      "{{ 'Start of the prompt. ' }}{{ messages[-1]['content'] }}"
      "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}";
  Serve();
  const Json messages = {{{"role", "system"}, {"content", "You know a great many things."}}};
  Result<MessagesPrefix> prefix = ComputeMessagesPrefix(*model_, {{"messages", messages}});
  ASSERT_TRUE(prefix.ok()) << prefix.problem().message;
  ASSERT_TRUE(prefix.value().template_break.has_value());
  EXPECT_EQ(*prefix.value().template_break, static_cast<int32_t>(prefix.value().tokens.size()));
  EXPECT_LT(prefix.value().tokens.size(), 8U);
}

TEST_F(MessagesPrefixTest, EqualTextsOfDifferentTurnsAreNotMistaken) {
  // What this template writes before the last user's message, it finds by the text.
  params_.chat_template =
      "{% set last = (messages | selectattr('role', 'equalto', 'user') | list)[-1] %}"
      "{% for message in messages %}{% if message['content'] == last['content'] %}[TOOLS]{% endif "
      "%}"
      "[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}";
  Serve();
  const Json messages = {{{"role", "system"}, {"content", "You know a great many things."}}};
  Result<MessagesPrefix> prefix = ComputeMessagesPrefix(*model_, {{"messages", messages}});
  ASSERT_TRUE(prefix.ok()) << prefix.problem().message;
  Json longer = messages;
  longer.push_back({{"role", "user"}, {"content", "First."}});
  longer.push_back({{"role", "assistant"}, {"content", "Second."}});
  ExpectPrefixOf(prefix.value().tokens, Prompt(longer, {{"role", "user"}, {"content", "Third."}}));
  ExpectPrefixOf(prefix.value().tokens, Prompt(messages, {{"role", "user"}, {"content", "Only."}}));
}

TEST_F(MessagesPrefixTest, AppendedMessagesGoOnWhereTheParentEnds) {
  const Json system = {{"role", "system"}, {"content", "You know this: the sky is green."}};
  const Json user = {{"role", "user"}, {"content", "Why?"}};
  const Json answer = {{"role", "assistant"}, {"content", "Nobody knows."}};
  const auto expect_sum = [&](const Json& parent, const Json& appended) {
    Json whole = parent;
    for (const Json& message : appended) whole.push_back(message);
    std::vector<Token> sum = ComputeMessagesPrefix(*model_, {{"messages", parent}}).value().tokens;
    Result<MessagesPrefix> added =
        ComputeAppendedMessages(*model_, {{"append_messages", appended}}, sum);
    ASSERT_TRUE(added.ok()) << added.problem().message;
    EXPECT_FALSE(added.value().template_break.has_value());
    sum.insert(sum.end(), added.value().tokens.begin(), added.value().tokens.end());
    EXPECT_EQ(sum, ComputeMessagesPrefix(*model_, {{"messages", whole}}).value().tokens);
  };
  expect_sum(Json::array({system}), Json::array({user}));
  expect_sum(Json::array({system, user}), Json::array({answer}));
  expect_sum(Json::array({system, user, answer}), Json::array({user, answer}));
}

TEST_F(MessagesPrefixTest, AppendedMessagesNeedAParentThatEndsAsMessagesDo) {
  const std::vector<Token> text = TokenizePrompt(*model_, "A text that is no chat").value();
  const Json system = Json::array({{{"role", "system"}, {"content", "You know nothing."}}});
  const std::vector<Token> chat =
      ComputeMessagesPrefix(*model_, {{"messages", system}}).value().tokens;
  const Json answer = Json::array({{{"role", "assistant"}, {"content", "Before the question"}}});
  const Json user = Json::array({{{"role", "user"}, {"content", "Why?"}}});
  for (const auto& [body, parent] :
       {std::pair(Json({{"append_messages", user}}), text),
        std::pair(Json({{"append_messages", user}}), std::vector<Token>()),
        std::pair(Json({{"append_messages", answer}}), chat),
        std::pair(Json({{"append_messages", Json::array()}}), chat),
        std::pair(Json({{"append_messages", {1}}}), chat),
        std::pair(Json({{"messages", user}}), chat)}) {
    const Result<MessagesPrefix> added = ComputeAppendedMessages(*model_, body, parent);
    ASSERT_FALSE(added.ok()) << JsonText(body);
    EXPECT_EQ(added.problem().status, 400);
    EXPECT_NE(added.problem().message, "");
  }
}

TEST_F(MessagesPrefixTest, RefusesWhatIsNoChat) {
  for (const char* body : {"{}", R"({"messages":[]})", R"({"messages":"x"})", R"({"messages":[1]})",
                           R"({"messages":[{"role":"user"}]})"}) {
    Result<MessagesPrefix> prefix = ComputeMessagesPrefix(*model_, Json::parse(body));
    ASSERT_FALSE(prefix.ok()) << body;
    EXPECT_EQ(prefix.problem().status, 400);
  }
}

}  // namespace
}  // namespace polykv
