#include "api/protocol/response_writer.h"

#include <gtest/gtest.h>

#include "api/protocol/json.h"
#include "api/protocol/response_plan.h"

namespace polykv {
namespace {

ResponseWriter::Plan PlanOf(task_response_type type, bool stream, bool with_block = false,
                            size_t n_generations = 1) {
  ResponseWriter::Plan plan;
  plan.with_attach_block = with_block;
  for (size_t i = 0; i < n_generations; ++i) {
    ResponseWriter::Plan::Generation generation;
    generation.params.res_type = type;
    generation.params.stream = stream;
    generation.params.oaicompat_model = "m";
    generation.params.oaicompat_cmpl_id = "chatcmpl-1";
    generation.n_prompt_tokens = 7;
    plan.generations.push_back(generation);
  }
  return plan;
}

Timings TimingsOf(int32_t n_generated) {
  return {.n_prompt_cached = 3,
          .n_prompt_processed = 4,
          .n_generated = n_generated,
          .t_queued = 900,
          .t_start = 1000,
          .t_prompt_last = 2000,
          .t_first = 2100,
          .t_last = 3000};
}

Piece PieceOf(const std::string& text, int32_t n, bool last = false) {
  return {.text = text, .token = {.token = 5}, .timings = TimingsOf(n), .last = last};
}

Finished FinishedOf(const std::string& text, StopKind stop) {
  Finished finished;
  finished.text = text;
  finished.stop = stop;
  finished.timings = TimingsOf(2);
  finished.report = {
      .pool_id = 1000, .session_id = "s", .cache_n = 3, .ctx_used = 9, .ctx_total = 64};
  return finished;
}

std::string Text(ResponseWriter& writer, const GenerationEvent& event) {
  std::string text;
  writer.StreamText(0, event, &text);
  return text;
}

// The JSON documents of a stream's data lines.
std::vector<Json> Documents(const std::string& sse) {
  std::vector<Json> documents;
  size_t from = 0;
  while ((from = sse.find("data: ", from)) != std::string::npos) {
    const size_t end = sse.find('\n', from);
    documents.push_back(Json::parse(sse.substr(from + 6, end - from - 6)));
    from = end;
  }
  return documents;
}

TEST(ResponseWriterTest, ChatStreamOpensWithTheRoleAndCloses) {
  ResponseWriter writer(PlanOf(TASK_RESPONSE_TYPE_OAI_CHAT, /*stream=*/true));
  EXPECT_EQ(Text(writer, Started{}), "");
  const std::vector<Json> first = Documents(Text(writer, PieceOf("Hi", 1)));
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(first[1]["choices"][0]["delta"]["content"], "Hi");
  EXPECT_EQ(Text(writer, PieceOf(" you", 2, /*last=*/true)), "");
  const std::vector<Json> last =
      Documents(Text(writer, FinishedOf("Hi you", StopKind::kEndOfGeneration)));
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(last[0]["choices"][0]["delta"]["content"], " you");
  EXPECT_EQ(last[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(last[1].contains("opencoti"));
  EXPECT_EQ(writer.StreamEnd(), "data: [DONE]\n\n");
}

TEST(ResponseWriterTest, RoleComesEvenIfTheFirstTokenMadeNoPiece) {
  ResponseWriter writer(PlanOf(TASK_RESPONSE_TYPE_OAI_CHAT, /*stream=*/true));
  const std::vector<Json> first = Documents(Text(writer, PieceOf("\xC3\xA9", 2)));
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first[0]["choices"][0]["delta"]["role"], "assistant");
}

TEST(ResponseWriterTest, BlockIsInTheFirstAndTheLastChunkOnly) {
  ResponseWriter writer(PlanOf(TASK_RESPONSE_TYPE_OAI_CMPL, /*stream=*/true, /*with_block=*/true));
  Text(writer, Started{.report = {.pool_id = 1000, .cache_n = 3}});
  const Json first = Documents(Text(writer, PieceOf("a", 1)))[0];
  EXPECT_EQ(first["opencoti"]["pool_id"], 1000);
  EXPECT_EQ(first["opencoti"]["cache_n"], 3);
  EXPECT_FALSE(Documents(Text(writer, PieceOf("b", 2)))[0].contains("opencoti"));
  const Json last = Documents(Text(writer, FinishedOf("ab", StopKind::kLimit)))[0];
  EXPECT_EQ(last["opencoti"]["session_id"], "s");
  EXPECT_EQ(last["opencoti"]["ctx_headroom_tokens"], 55);
  EXPECT_TRUE(last["opencoti"]["session_tps"].is_null());
  EXPECT_FALSE(last["opencoti"].contains("miss_reason"));
}

TEST(ResponseWriterTest, AnthropicAndResponsesShowTheBlockInTheirOwnPlaces) {
  ResponseWriter messages(
      PlanOf(TASK_RESPONSE_TYPE_ANTHROPIC, /*stream=*/true, /*with_block=*/true));
  std::string text = Text(messages, PieceOf("a", 1));
  text = Text(messages, FinishedOf("a", StopKind::kLimit));
  bool found = false;
  for (const Json& event : Documents(text)) {
    if (event.contains("opencoti")) found = event["type"] == "message_delta";
  }
  EXPECT_TRUE(found) << text;

  ResponseWriter responses(
      PlanOf(TASK_RESPONSE_TYPE_OAI_RESP, /*stream=*/true, /*with_block=*/true));
  Text(responses, PieceOf("a", 1));
  text = Text(responses, FinishedOf("a", StopKind::kLimit));
  const Json completed = Documents(text).back();
  EXPECT_EQ(completed["type"], "response.completed");
  EXPECT_EQ(completed["response"]["opencoti"]["cache_n"], 3);
}

TEST(ResponseWriterTest, ChoicesAreMergedIntoOneBody) {
  ResponseWriter writer(
      PlanOf(TASK_RESPONSE_TYPE_OAI_CHAT, /*stream=*/false, /*with_block=*/true, 2));
  const Json body = Json::parse(writer.Body(
      {FinishedOf("one", StopKind::kEndOfGeneration), FinishedOf("two", StopKind::kLimit)}));
  ASSERT_EQ(body["choices"].size(), 2U);
  EXPECT_EQ(body["choices"][1]["message"]["content"], "two");
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(body["timings"]["cache_n"], 3);
  EXPECT_EQ(body["opencoti"]["pool_id"], 1000);
}

TEST(ResponseWriterTest, NativePromptsMakeAnArray) {
  ResponseWriter writer(PlanOf(TASK_RESPONSE_TYPE_NONE, /*stream=*/false, /*with_block=*/false, 2));
  const Json body = Json::parse(
      writer.Body({FinishedOf("one", StopKind::kLimit), FinishedOf("two", StopKind::kLimit)}));
  ASSERT_TRUE(body.is_array());
  EXPECT_EQ(body[1]["content"], "two");
  EXPECT_EQ(body[1]["stop_type"], "limit");
  EXPECT_EQ(body[0]["timings"]["predicted_n"], 2);
}

TEST(ResponseWriterTest, ErrorsInAStreamAreEvents) {
  const std::string error = R"({"code":503,"message":"gone","type":"unavailable_error"})";
  ResponseWriter chat(PlanOf(TASK_RESPONSE_TYPE_OAI_CHAT, /*stream=*/true));
  EXPECT_EQ(chat.StreamError(error), "data: {\"error\":" + error + "}\n\n");
  ResponseWriter messages(PlanOf(TASK_RESPONSE_TYPE_ANTHROPIC, /*stream=*/true));
  EXPECT_EQ(messages.StreamError(error), "event: error\ndata: " + error + "\n\n");
}

}  // namespace
}  // namespace polykv
