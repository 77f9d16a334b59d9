#include <gtest/gtest.h>

#include "api/routes.h"

namespace polykv {
namespace {

TEST(HealthTest, SaysThatWorkDoesNotGetOn) {
  Watchdog watchdog(10'000'000);
  Services services;
  services.watchdog = &watchdog;
  HttpServer http({});
  AddStatusRoutes(&http, &services);
  for (const char* path : {"/health", "/v1/health"}) {
    const HttpHandler& health = http.handlers().at(path);
    watchdog.Look(/*progress=*/1, /*has_work=*/true, 0);
    EXPECT_EQ(health({}).status, 200);
    watchdog.Look(1, true, 10'000'000);
    const HttpResponse stalled = health({});
    EXPECT_EQ(stalled.status, 503);
    EXPECT_EQ(stalled.headers.at("Retry-After"), "5");
    EXPECT_NE(stalled.body.find(R"("type":"unavailable_error")"), std::string::npos);
    watchdog.Look(2, true, 10'000'001);
    EXPECT_EQ(health({}).status, 200);
  }
}

}  // namespace
}  // namespace polykv
