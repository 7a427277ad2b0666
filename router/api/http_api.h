#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/clock.h"
#include "common/http/http_server.h"
#include "router/api/api_answer.h"
#include "router/api/api_request.h"
#include "router/api/cors.h"
#include "router/api/keep_alive.h"
#include "router/api/openai_request.h"
#include "router/api/score_answer.h"
#include "router/frontend/request_frontend.h"

namespace baton::router {

struct HttpApiOptions {
  int32_t max_requests = 0;  // the router's limit on concurrent requests
  Duration keep_alive{};     // see KeepAlive
  std::vector<std::string> cors_origins;
};

// The HTTP APIs of OpenAI (/v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings,
// /v1/models) and Anthropic (/v1/messages), vLLM's /v1/score, /tokenize and /detokenize, /v1/rerank
// of Jina and Cohere, and /version. Thread-safe.
class HttpApi final {
 public:
  // `frontend` outlives the API and the server's handlers.
  HttpApi(RequestFrontend& frontend, const HttpApiOptions& options);

  void AddRoutes(HttpServer& http);

 private:
  // A request and the form of its answer.
  struct Call {
    ApiRequest request;
    std::unique_ptr<ApiAnswer> answer;
  };
  using Reader = StatusOr<Call> (HttpApi::*)(const nlohmann::ordered_json& body) const;
  using Error = std::string (*)(const Status&);

  void Route(HttpServer& http,
             const std::string& method,
             const std::string& path,
             Error error,
             HttpServer::Handler handler);
  void AddHeaders(HttpExchange& exchange, Error error) const;
  void RunFairly(const std::shared_ptr<HttpExchange>& exchange,
                 Error error,
                 std::function<void()> job);
  void AddGeneration(HttpServer& http, const std::string& path, Reader reader, Error error);
  void Generate(Reader reader, Error error, const std::shared_ptr<HttpExchange>& exchange);
  StatusOr<Call> Read(Reader reader, const HttpRequest& http) const;
  StatusOr<Call> ReadChat(const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadCompletion(const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadOpenAi(OpenAiKind kind, const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadResponses(const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadMessages(const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadEmbeddings(const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadScore(const nlohmann::ordered_json& body) const;
  StatusOr<Call> ReadRerank(const nlohmann::ordered_json& body) const;
  Call ScoreCall(ScoreAnswer::Kind kind, ApiRequest request, ScoreForm form) const;
  void Model(HttpExchange& exchange) const;
  Status CheckPrompts(const ApiRequest& request) const;
  std::vector<std::string> PromptTexts(const ApiRequest& request) const;

  RequestFrontend& frontend_;
  const int32_t max_requests_;
  const int64_t started_;  // seconds since 1970
  const Cors cors_;
  KeepAlive keep_alive_;
};

}  // namespace baton::router
