#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/http/http_server.h"
#include "router/openai_request.h"
#include "router/request_frontend.h"

namespace baton::router {

// The OpenAI HTTP API: /v1/chat/completions, /v1/completions, /v1/models and
// /v1/models/{id}. Thread-safe.
class OpenAiApi final {
 public:
  // `frontend` outlives the API and the server's handlers. `max_requests`: the router's limit on
  // concurrent requests.
  OpenAiApi(RequestFrontend& frontend, int32_t max_requests);

  void AddRoutes(HttpServer& http);

 private:
  void Generate(OpenAiKind kind, const std::shared_ptr<HttpExchange>& exchange);
  void Model(HttpExchange& exchange) const;
  Status CheckPrompts(const OpenAiRequest& request) const;
  std::vector<std::string> PromptTexts(const OpenAiRequest& request) const;

  RequestFrontend& frontend_;
  const int32_t max_requests_;
  const int64_t started_;  // seconds since 1970
};

}  // namespace baton::router
