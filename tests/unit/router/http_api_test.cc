// The HTTP APIs on a server of their own.
#include "router/api/http_api.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/http/http_server.h"
#include "tests/support/raw_http.h"
#include "tests/unit/router/frontend_harness.h"

namespace baton::router {
namespace {

using Json = nlohmann::json;

HttpAnswer Post(const std::string& address, const std::string& path) {
  const std::string body = R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1})";
  return HttpSend(address, PostRequest(path, body, "Content-Type: application/json\r\n"));
}

TEST(HttpApi, TellsTheClientsOfEachApiInItsOwnFormThatTheRouterStops) {
  FrontendHarness harness;
  HttpApi api(harness.frontend(), {.max_requests = 4, .keep_alive = {}, .cors_origins = {}});
  const auto http = HttpServer::Start({});
  ASSERT_TRUE(http.ok()) << http.status();
  api.AddRoutes(**http);
  harness.frontend().Stop();
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    const HttpAnswer answer = Post((*http)->address(), path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_NE(answer.head.find("\r\nrequest-id: "), std::string::npos) << answer.head;
    EXPECT_EQ(Json::parse(answer.body),
              Json::parse(R"({"type": "error", "error": {"type": "overloaded_error",
                              "message": "this router is shutting down"}})"))
        << path;
  }
  for (const char* path : {"/v1/chat/completions", "/v1/responses", "/tokenize"}) {
    const HttpAnswer answer = Post((*http)->address(), path);
    EXPECT_EQ(answer.status, 503) << path;
    const Json body = Json::parse(answer.body);
    EXPECT_FALSE(body.contains("type")) << path;
    EXPECT_EQ(body.at("error").at("message"), "this router is shutting down") << path;
    EXPECT_TRUE(body["error"].contains("code")) << path;
  }
}

}  // namespace
}  // namespace baton::router
