#pragma once

#include <string>

#include "common/http/http_server.h"
#include "router/core_loop.h"
#include "router/openai_request.h"
#include "router/request_frontend.h"

namespace baton::router {

// The OpenAI HTTP API: /v1/chat/completions, /v1/completions, /v1/models. Thread-safe.
class OpenAiApi final {
 public:
  // Outlives the API and the server's handlers.
  explicit OpenAiApi(RequestFrontend& frontend);

  void AddRoutes(HttpServer& http);

 private:
  void Generate(OpenAiKind kind, const std::shared_ptr<HttpExchange>& exchange);
  std::string Models() const;

  RequestFrontend& frontend_;
  const int64_t started_;  // seconds since 1970
};

}  // namespace baton::router
