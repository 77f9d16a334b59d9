#include "api/protocol/attach_fields.h"

#include <gtest/gtest.h>

#include "server-common.h"

namespace polykv {
namespace {

Result<AttachFields> Parse(const std::string& body, const HeaderMap& headers = {}) {
  return ParseAttachFields(common_json::parse(body), headers);
}

TEST(AttachFieldsTest, PlainRequestSendsNothing) {
  Result<AttachFields> fields = Parse(R"({"prompt":"x","pool_id":null})");
  ASSERT_TRUE(fields.ok());
  EXPECT_FALSE(fields.value().sent);
  EXPECT_FALSE(fields.value().spec.any());
}

TEST(AttachFieldsTest, PoolByNumberStringOrName) {
  EXPECT_EQ(Parse(R"({"pool_id":12000})").value().spec.pool, "12000");
  EXPECT_EQ(Parse(R"({"pool_id":"12000"})").value().spec.pool, "12000");
  EXPECT_EQ(Parse(R"({"pool_id":"docs"})").value().spec.pool, "docs");
}

TEST(AttachFieldsTest, TopLevelBeatsNestedBeatsHeaders) {
  const HeaderMap headers = {{"x-polykv-pool", "header"}, {"x-polykv-session", "s"}};
  EXPECT_EQ(Parse("{}", headers).value().spec.pool, "header");
  EXPECT_EQ(Parse("{}", headers).value().spec.session_id, "s");
  EXPECT_EQ(Parse(R"({"opencoti":{"pool_id":"nested"}})", headers).value().spec.pool, "nested");
  EXPECT_EQ(
      Parse(R"({"pool_id":"top","opencoti":{"pool_id":"nested"}})", headers).value().spec.pool,
      "top");
}

TEST(AttachFieldsTest, ReadsTheRest) {
  Result<AttachFields> fields = Parse(
      R"({"pool_id":1,"session_id":"a","session_end":true,"on_pool_miss":"error",
          "shared_prefix_n_tokens":7,"overcommit":true})");
  ASSERT_TRUE(fields.ok());
  const AttachSpec& spec = fields.value().spec;
  EXPECT_TRUE(spec.session_end);
  EXPECT_TRUE(spec.error_on_miss);
  EXPECT_EQ(spec.shared_prefix_n_tokens, 7);
  EXPECT_TRUE(fields.value().sent);
}

TEST(AttachFieldsTest, OvercommitAloneAsksForABlock) {
  EXPECT_TRUE(Parse(R"({"overcommit":false})").value().sent);
}

TEST(AttachFieldsTest, WrongFieldsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"pool_id":-1})", "pool_id"},
      {R"({"pool_id":1.5})", "pool_id"},
      {R"({"pool_id":[1]})", "pool_id"},
      {R"({"pool_id":""})", "pool_id"},
      {R"({"session_id":7})", "session_id"},
      {R"({"session_id":""})", "session_id"},
      {R"({"session_id":"a\nb"})", "session_id"},
      {R"({"session_end":"yes"})", "session_end"},
      {R"({"on_pool_miss":"maybe"})", "on_pool_miss"},
      {R"({"pool_id":1,"shared_prefix_n_tokens":-3})", "shared_prefix_n_tokens"},
      {R"({"pool_id":1,"shared_prefix_n_tokens":1e30})", "shared_prefix_n_tokens"},
      {R"({"shared_prefix_n_tokens":3})", "shared_prefix_n_tokens"},
      {R"({"shared_pool_slot":-1})", "shared_pool_slot"},
      {R"({"shared_pool_slot":1,"pool_id":1})", "shared_pool_slot"},
      {R"({"overcommit":1})", "overcommit"},
  };
  for (const auto& [body, name] : cases) {
    Result<AttachFields> fields = Parse(body);
    ASSERT_FALSE(fields.ok()) << body;
    EXPECT_EQ(fields.problem().status, 400);
    EXPECT_NE(fields.problem().message.find(name), std::string::npos) << body;
  }
}

TEST(AttachFieldsTest, LongOrBadHeadersAreRefused) {
  EXPECT_FALSE(Parse("{}", {{"x-polykv-session", std::string(257, 'x')}}).ok());
  EXPECT_FALSE(Parse("{}", {{"x-polykv-pool", "\xff"}}).ok());
}

}  // namespace
}  // namespace polykv
