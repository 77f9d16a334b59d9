#include "api/problem.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

TEST(ProblemTest, BodyIsLlamaServersShape) {
  const HttpResponse response = ProblemResponse(InvalidRequest("no \"prompt\""));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body,
            R"({"error":{"code":400,"message":"no \"prompt\"","type":"invalid_request_error"}})");
  EXPECT_TRUE(response.headers.empty());
}

TEST(ProblemTest, ContextSizeCarriesBothCounts) {
  const Problem problem = {.status = 400,
                           .type = "exceed_context_size_error",
                           .message = "too long",
                           .n_prompt_tokens = 5000,
                           .n_ctx = 2048};
  EXPECT_EQ(ProblemJson(problem),
            R"({"code":400,"message":"too long","type":"exceed_context_size_error",)"
            R"("n_prompt_tokens":5000,"n_ctx":2048})");
}

TEST(ProblemTest, RetryAfterIsAHeader) {
  const HttpResponse response = ProblemResponse(
      {.status = 503, .type = "no_free_cells", .message = "full", .retry_after_s = 7});
  EXPECT_EQ(response.headers.at("Retry-After"), "7");
}

TEST(ProblemTest, BytesOfTheClientCannotBreakTheBody) {
  EXPECT_EQ(ProblemJson(InvalidRequest("\xff")),
            "{\"code\":400,\"message\":\"\xEF\xBF\xBD\",\"type\":\"invalid_request_error\"}");
}

}  // namespace
}  // namespace polykv
