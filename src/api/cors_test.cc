#include "api/cors.h"

#include <gtest/gtest.h>

namespace polykv {
namespace {

constexpr char kHost[] = "127.0.0.1:8080";

TEST(AllowedOriginTest, FollowsTheFlag) {
  EXPECT_EQ(AllowedOrigin("*", true, "http://a.example"), "http://a.example");
  EXPECT_EQ(AllowedOrigin("*", false, "http://a.example"), "*");
  EXPECT_EQ(AllowedOrigin("localhost", true, "http://localhost:3000"), "http://localhost:3000");
  EXPECT_EQ(AllowedOrigin("localhost", true, "http://localhost.a.example"), "");
  EXPECT_EQ(AllowedOrigin("http://a.example", true, "http://b.example"), "http://a.example");
  EXPECT_EQ(AllowedOrigin("http://a.example, http://b.example", true, "http://b.example"),
            "http://b.example");
}

TEST(CheckOriginTest, ProgramsSendNoOrigin) {
  EXPECT_FALSE(CheckOrigin({}, kHost, "").has_value());
  EXPECT_FALSE(CheckOrigin({}, "localhost", "").has_value());
  EXPECT_FALSE(CheckOrigin({}, "[::1]:8080", "").has_value());
}

TEST(CheckOriginTest, ForeignHostOnLoopbackIsRefused) {
  const std::optional<Problem> problem = CheckOrigin({}, "evil.example:8080", "");
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->status, 403);
  EXPECT_FALSE(CheckOrigin({.loopback_only = false}, "box.example:8080", "").has_value());
}

TEST(CheckOriginTest, NamesThatOnlyLookLocalAreForeign) {
  EXPECT_TRUE(CheckOrigin({}, "127.evil.example", "").has_value());
  EXPECT_TRUE(CheckOrigin({}, "localhost.evil.example", "").has_value());
  EXPECT_TRUE(CheckOrigin({}, "evil.sock", "").has_value());
}

TEST(CheckOriginTest, OwnOriginPasses) {
  EXPECT_FALSE(CheckOrigin({}, kHost, "http://127.0.0.1:8080").has_value());
  EXPECT_TRUE(CheckOrigin({}, kHost, "http://127.0.0.1:3000").has_value());
}

TEST(CheckOriginTest, DefaultStarDoesNotOpenTheControlPlane) {
  EXPECT_TRUE(CheckOrigin({}, kHost, "http://evil.example").has_value());
  EXPECT_TRUE(CheckOrigin({}, kHost, "null").has_value());
  EXPECT_FALSE(CheckOrigin({.cors_origins_explicit = true}, kHost, "http://a.example").has_value());
}

TEST(CheckOriginTest, ListedOriginsPass) {
  const AccessRules rules = {.cors_origins = "http://a.example,http://b.example"};
  EXPECT_FALSE(CheckOrigin(rules, kHost, "http://b.example").has_value());
  EXPECT_TRUE(CheckOrigin(rules, kHost, "http://c.example").has_value());
}

}  // namespace
}  // namespace polykv
