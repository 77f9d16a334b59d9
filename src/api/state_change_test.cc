#include "api/state_change.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

HttpRequest RequestWith(const std::string& body, const std::string& type = "application/json") {
  HttpRequest request;
  request.body = body;
  request.headers = {{"host", "127.0.0.1:8080"}, {"content-type", type}};
  return request;
}

TEST(ReadStateChangeTest, TakesKnownFields) {
  Result<Json> body = ReadStateChange({}, RequestWith(R"({"pin":true})"), {"pin", "name"});
  ASSERT_TRUE(body.ok());
  EXPECT_EQ(BoolField(body.value(), "pin").value(), true);
  EXPECT_FALSE(StringField(body.value(), "name").value().has_value());
}

TEST(ReadStateChangeTest, NamesUnknownFields) {
  Result<Json> body = ReadStateChange({}, RequestWith(R"({"pni":true})"), {"pin"});
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.problem().status, 400);
  EXPECT_NE(body.problem().message.find("'pni'"), std::string::npos);
}

TEST(ReadStateChangeTest, WantsJsonUnlessThereIsNoBody) {
  EXPECT_EQ(ReadStateChange({}, RequestWith("{}", "text/plain"), {}).problem().status, 415);
  EXPECT_EQ(ReadStateChange({}, RequestWith("{}", ""), {}).problem().status, 415);
  EXPECT_TRUE(ReadStateChange({}, RequestWith("{}", "Application/JSON; charset=utf-8"), {}).ok());
  EXPECT_TRUE(ReadStateChange({}, RequestWith("", ""), {}).ok());
  // A form that a foreign page may send without asking first.
  EXPECT_EQ(ReadStateChange({}, RequestWith("", "text/plain"), {}).problem().status, 415);
}

TEST(ReadStateChangeTest, RefusesForeignPages) {
  HttpRequest request = RequestWith("{}");
  request.headers["origin"] = "http://evil.example";
  EXPECT_EQ(ReadStateChange({}, request, {}).problem().status, 403);
}

TEST(FieldTest, WrongTypesAreNamed) {
  const Json body = {{"flag", 1}, {"name", 2}, {"count", -1}, {"huge", 1e300}, {"none", nullptr}};
  EXPECT_NE(BoolField(body, "flag").problem().message.find("'flag'"), std::string::npos);
  EXPECT_NE(StringField(body, "name").problem().message.find("'name'"), std::string::npos);
  EXPECT_NE(CountField(body, "count").problem().message.find("'count'"), std::string::npos);
  EXPECT_FALSE(CountField(body, "huge").ok());
  EXPECT_FALSE(CountField(body, "none").value().has_value());
}

TEST(AwaitTest, ClientThatHasGoneCancels) {
  Channel<Result<int>> channel;
  HttpRequest request;
  request.should_stop = [] { return true; };
  EXPECT_FALSE(Await(&channel, request).has_value());
  EXPECT_TRUE(channel.cancelled());
}

TEST(AwaitTest, DeliversTheAnswer) {
  Channel<Result<int>> channel;
  channel.Push(7);
  const auto answer = Await(&channel, HttpRequest());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->value(), 7);
}

}  // namespace
}  // namespace polykv
