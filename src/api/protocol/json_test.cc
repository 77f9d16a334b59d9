#include "api/protocol/json.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

TEST(ParseJsonObjectTest, TakesAnObject) {
  Result<Json> json = ParseJsonObject(R"({"a":[1,2,{"b":"]]]"}]})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(JsonText(json.value()), R"({"a":[1,2,{"b":"]]]"}]})");
}

TEST(ParseJsonObjectTest, RefusesWhatIsNoObject) {
  for (const char* body : {"", "[1]", "null", "{\"a\":", "{\"a\":1}x", "\"text\""}) {
    Result<Json> json = ParseJsonObject(body);
    ASSERT_FALSE(json.ok()) << body;
    EXPECT_EQ(json.problem().status, 400);
    EXPECT_EQ(json.problem().type, "invalid_request_error");
  }
}

TEST(ParseJsonObjectTest, RefusesBadUtf8AndCanStillPrintTheError) {
  Result<Json> json = ParseJsonObject("{\"a\":\"\xff\xfe\"}");
  ASSERT_FALSE(json.ok());
  EXPECT_TRUE(IsUtf8(JsonText(Json(json.problem().message))));
}

TEST(ParseJsonObjectTest, RefusesDeepNestingWithoutRecursing) {
  const std::string deep(1'000'000, '[');
  Result<Json> json = ParseJsonObject("{\"a\":" + deep);
  ASSERT_FALSE(json.ok());
  EXPECT_NE(json.problem().message.find("nested deeper"), std::string::npos);
}

TEST(ParseJsonObjectTest, BracketsInStringsDoNotNest) {
  const std::string brackets(1000, '[');
  EXPECT_TRUE(ParseJsonObject("{\"a\":\"\\\"" + brackets + "\"}").ok());
}

TEST(ParseJsonObjectTest, EmptyBodyOnlyWhereAllowed) {
  EXPECT_TRUE(ParseJsonObject("", /*allow_empty=*/true).ok());
}

TEST(IsUtf8Test, FollowsRfc3629) {
  EXPECT_TRUE(IsUtf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
  EXPECT_FALSE(IsUtf8("\xC0\x80"));          // overlong
  EXPECT_FALSE(IsUtf8("\xED\xA0\x80"));      // surrogate
  EXPECT_FALSE(IsUtf8("\xF4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(IsUtf8("\xE2\x82"));          // cut off
}

TEST(IsNameTest, BoundsAndControls) {
  EXPECT_TRUE(IsName("agent 7 / \xC3\xA9"));
  EXPECT_TRUE(IsName(std::string(256, 'x')));
  EXPECT_FALSE(IsName(""));
  EXPECT_FALSE(IsName(std::string(257, 'x')));
  EXPECT_FALSE(IsName("a\nb"));
  EXPECT_FALSE(IsName("a\x7f"));
  EXPECT_FALSE(IsName(std::string_view("a\0b", 3)));
  EXPECT_FALSE(IsName("\xff"));
}

}  // namespace
}  // namespace polykv
