#include "api/predict_routes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "api/protocol/json.h"

namespace polykv {
namespace {

Result<std::optional<PredictConfig>> Read(std::map<std::string, std::string> environment) {
  return ReadPredictConfig([&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

// A server whose routes answer with their name, and the answer of its prediction route to `body`.
class PredictRoutes : public testing::Test {
 protected:
  PredictRoutes() {
    const auto echo = [](const std::string& name) {
      return [name](const HttpRequest& request) {
        HttpResponse response;
        response.body = JsonText({{"route", name}, {"body", Json::parse(request.body)}});
        return response;
      };
    };
    server_.Get("/health", echo("health"));
    server_.Post("/completions", echo("native"));
    server_.Post("/v1/completions", echo("openai"));
    server_.Post("/text", [](const HttpRequest&) {
      HttpResponse response;
      response.body = "no JSON";
      return response;
    });
    server_.Post("/throws",
                 [](const HttpRequest&) -> HttpResponse { throw std::invalid_argument("thrown"); });
    server_.Post("/streams", [](const HttpRequest&) {
      HttpResponse response;
      response.next = [](std::string*) { return false; };
      return response;
    });
    EXPECT_FALSE(AddPredictRoutes(&server_, {.health_path = "/alive"}).has_value());
  }

  HttpResponse Post(const std::string& body) {
    HttpRequest request;
    request.body = body;
    return server_.handlers().at("/predict")(request);
  }

  Json Predict(const Json& instance) {
    const HttpResponse response = Post(JsonText({{"instances", Json::array({instance})}}));
    EXPECT_EQ(response.status, 200);
    return Json::parse(response.body).at("predictions").at(0);
  }

  HttpServer server_{HttpServerConfig{}};
};

TEST(PredictConfigTest, IsThereOnlyInPredictionMode) {
  EXPECT_FALSE(Read({}).value().has_value());
  EXPECT_FALSE(Read({{"AIP_MODE", "TRAINING"}, {"AIP_HTTP_PORT", "x"}}).value().has_value());
  EXPECT_EQ(Read({{"AIP_MODE", "PREDICTION"}}).value()->predict_path, "/predict");
}

TEST(PredictConfigTest, ReadsPortAndPaths) {
  const auto config = Read({{"AIP_MODE", "PREDICTION"},
                            {"AIP_HTTP_PORT", "9000"},
                            {"AIP_PREDICT_ROUTE", "ask"},
                            {"AIP_HEALTH_ROUTE", "/alive"}});
  EXPECT_EQ(config.value()->port, 9000);
  EXPECT_EQ(config.value()->predict_path, "/ask");
  EXPECT_EQ(config.value()->health_path, "/alive");
}

TEST(PredictConfigTest, RefusesAPortThatIsNoNumber) {
  EXPECT_FALSE(Read({{"AIP_MODE", "PREDICTION"}, {"AIP_HTTP_PORT", "80a"}}).ok());
}

TEST(RequestFormatTest, IsThePathInCamelCase) {
  EXPECT_EQ(RequestFormat("/v1/chat/completions"), "chatCompletions");
  EXPECT_EQ(RequestFormat("/apply-template"), "applyTemplate");
  EXPECT_EQ(RequestFormat("/v1/messages/count_tokens"), "messagesCountTokens");
  EXPECT_EQ(RequestFormat("/slots/:id_slot"), "slots");
}

TEST_F(PredictRoutes, DispatchByFormatAndByPath) {
  EXPECT_EQ(Predict({{"@requestFormat", "completions"}}).at("route"), "openai");
  EXPECT_EQ(Predict({{"@requestFormat", "/completions"}}).at("route"), "native");
}

TEST_F(PredictRoutes, PassTheInstanceOnWithoutFormatAndStream) {
  const Json prediction = Predict({{"@requestFormat", "completions"}, {"a", 1}, {"stream", true}});
  EXPECT_EQ(prediction.at("body"), Json({{"a", 1}, {"stream", false}}));
}

TEST_F(PredictRoutes, AnswerEachInstanceInItsPlace) {
  const Json body = Json::parse(Post(R"({"instances":[{"@requestFormat":"completions","i":0}, 5,
      {"@requestFormat":"completions","i":2}, {}, {"@requestFormat":"unheard"}]})")
                                    .body);
  const Json& predictions = body.at("predictions");
  EXPECT_EQ(predictions.at(0).at("body").at("i"), 0);
  EXPECT_EQ(predictions.at(2).at("body").at("i"), 2);
  for (const int wrong : {1, 3, 4}) {
    EXPECT_EQ(predictions.at(wrong).at("error").at("type"), "invalid_request_error");
  }
}

TEST_F(PredictRoutes, TakeWhateverARouteAnswers) {
  EXPECT_EQ(Predict({{"@requestFormat", "text"}}), "no JSON");
  EXPECT_EQ(Predict({{"@requestFormat", "throws"}}).at("error").at("message"), "thrown");
  EXPECT_EQ(Predict({{"@requestFormat", "streams"}}).at("error").at("code"), 400);
}

TEST_F(PredictRoutes, RefuseABodyWithoutInstancesOrWithTooMany) {
  for (const char* body : {"", "[]", "{}", R"({"instances":{}})"}) {
    EXPECT_EQ(Post(body).status, 400) << body;
  }
  EXPECT_EQ(Post(JsonText({{"instances", Json(std::vector<int>(129))}})).status, 400);
}

TEST_F(PredictRoutes, AddAHealthPath) { EXPECT_TRUE(server_.handlers().contains("/alive")); }

TEST_F(PredictRoutes, DoNotTakeTheNameOfAnotherRoute) {
  EXPECT_TRUE(AddPredictRoutes(&server_, {.predict_path = "/health"}).has_value());
}

}  // namespace
}  // namespace polykv
