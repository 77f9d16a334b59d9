#include "api/protocol/messages_prefix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "api/protocol/text_tools.h"
#include "common.h"
#include "llama-cpp.h"

namespace polykv {
namespace {

// The vocabulary and the chat template of the model in $POLYKV_TEST_MODEL.
class MessagesPrefixTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("POLYKV_TEST_MODEL");
    ASSERT_NE(path, nullptr) << "set POLYKV_TEST_MODEL to a GGUF file";
    llama_model_params model_params = llama_model_default_params();
    model_params.vocab_only = true;
    weights_.reset(llama_model_load_from_file(path, model_params));
    ASSERT_NE(weights_, nullptr);
    params_.use_jinja = true;
    Serve();
  }

  void Serve() {
    Result<std::unique_ptr<ServedModel>> model =
        ServedModel::Make({.params = &params_, .model = weights_.get(), .make_sampler = {}});
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

  llama_model_ptr weights_;
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
