#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/http/http_server.h"
#include "common/metrics/metrics.h"
#include "tests/support/raw_http.h"

namespace baton {

class HttpServerTest : public ::testing::Test {
 protected:
  // Starts a server with GET /hello, POST /echo and the probe /healthz.
  void StartServer(HttpServerOptions options = {}) {
    options.metrics = &metrics_;
    auto server = HttpServer::Start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->AddRoute("GET", "/hello", [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Reply(200, "text/plain", "hello " + exchange->request().query);
    });
    server_->AddRoute("POST", "/echo", [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->AddHeader("X-Kind", std::string(exchange->request().header("x-kind")));
      exchange->Reply(200, "text/plain", exchange->request().body);
    });
    server_->AddProbe("/healthz", [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Reply(200, "text/plain", "ok");
    });
  }
  const std::string& address() const { return server_->address(); }

  // The message of an error of the server itself, which is JSON in the shape of the OpenAI API.
  static std::string ErrorOf(const HttpAnswer& answer) {
    EXPECT_NE(answer.head.find("Content-Type: application/json"), std::string::npos) << answer.head;
    const auto body = nlohmann::json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
    if (!body.is_object() || !body.contains("error")) {
      ADD_FAILURE() << "not an error object: " << answer.body;
      return "";
    }
    const nlohmann::json& error = body["error"];
    EXPECT_EQ(error.value("type", ""),
              answer.status < 500 ? "invalid_request_error" : "server_error");
    EXPECT_TRUE(error.contains("param") && error.contains("code")) << answer.body;
    return error.value("message", "");
  }

  static void Await(const std::function<bool()>& condition, const char* what) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_TRUE(condition()) << "never came: " << what;
  }

  // The value of a series, named with its labels as in the text format; 0 when there is none.
  double Metric(const std::string& series) {
    const std::string text = "\n" + metrics_.Serialize();
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + series.size() + 2));
  }

  MetricsRegistry metrics_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace baton
