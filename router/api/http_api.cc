#include "router/api/http_api.h"

#include <charconv>
#include <chrono>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/app/version.h"
#include "common/base/hash.h"
#include "router/api/answer_json.h"
#include "router/api/api_call.h"
#include "router/api/embeddings_answer.h"
#include "router/api/embeddings_request.h"
#include "router/api/json_members.h"
#include "router/api/messages_answer.h"
#include "router/api/messages_request.h"
#include "router/api/openai_answer.h"
#include "router/api/responses_answer.h"
#include "router/api/responses_request.h"
#include "router/api/score_request.h"
#include "router/api/text_endpoints.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kJson = "application/json";
constexpr std::string_view kModelPath = "/v1/models/";
constexpr const char* kTimeoutHeader = "x-request-timeout-ms";
constexpr int64_t kMaxTimeoutMs = int64_t{24} * 3600 * 1000;

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::string NewId() {
  return fmt::format("{:016x}", RandomId());
}

// Decodes percent-encoded bytes, %41 to A (RFC 3986, section 2.1). A '%' without two hexadecimal
// digits stays.
std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool coded = text[i] == '%' && i + 2 < text.size() &&
                       std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out.push_back(coded ? static_cast<char>(byte) : text[i]);
    if (coded) i += 2;
  }
  return out;
}

// Sets the time limit of the header, unless the body has set one.
Status ReadTimeoutHeader(const HttpRequest& http, GenerationRequest& out) {
  const std::string_view text = http.header(kTimeoutHeader);
  if (text.empty() || out.timeout > Duration::zero()) return OkStatus();
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < 1 || value > kMaxTimeoutMs) {
    return InvalidMember(kTimeoutHeader,
                         "the header {} is \"{}\"; it must be between 1 and {} milliseconds",
                         kTimeoutHeader,
                         Shown(text),
                         kMaxTimeoutMs);
  }
  out.timeout = std::chrono::milliseconds(value);
  return OkStatus();
}

}  // namespace

HttpApi::HttpApi(RequestFrontend& frontend, const HttpApiOptions& options)
    : frontend_(frontend),
      max_requests_(options.max_requests),
      started_(UnixSeconds()),
      cors_(options.cors_origins),
      keep_alive_(options.keep_alive) {}

void HttpApi::AddRoutes(HttpServer& http) {
  AddGeneration(http, "/v1/chat/completions", &HttpApi::ReadChat, &OpenAiError);
  AddGeneration(http, "/v1/completions", &HttpApi::ReadCompletion, &OpenAiError);
  AddGeneration(http, "/v1/responses", &HttpApi::ReadResponses, &OpenAiError);
  AddGeneration(http, "/v1/messages", &HttpApi::ReadMessages, &MessagesError);
  AddGeneration(http, "/v1/embeddings", &HttpApi::ReadEmbeddings, &OpenAiError);
  for (const char* const path : {"/v1/score", "/score"}) {
    AddGeneration(http, path, &HttpApi::ReadScore, &OpenAiError);
  }
  for (const char* const path : {"/v1/rerank", "/rerank", "/v2/rerank"}) {
    AddGeneration(http, path, &HttpApi::ReadRerank, &OpenAiError);
  }
  using Exchange = std::shared_ptr<HttpExchange>;
  Route(
      http, "POST", "/v1/messages/count_tokens", &MessagesError, [this](const Exchange& exchange) {
        HandleCountTokens(frontend_, exchange);
      });
  Route(http, "POST", "/v1/responses/input_tokens", &OpenAiError, [this](const Exchange& exchange) {
    HandleInputTokens(frontend_, exchange);
  });
  Route(http, "POST", "/tokenize", &OpenAiError, [this](const Exchange& exchange) {
    HandleTokenize(frontend_, exchange);
  });
  Route(http, "POST", "/detokenize", &OpenAiError, [this](const Exchange& exchange) {
    HandleDetokenize(frontend_, exchange);
  });
  Route(http, "GET", "/version", &OpenAiError, [](const Exchange& exchange) {
    exchange->Reply(200, kJson, Dump({{"version", Version()}}));
  });
  Route(http, "GET", "/v1/models", &OpenAiError, [this](const Exchange& exchange) {
    exchange->Reply(
        200, kJson, OpenAiModels(frontend_.model_names(), started_, frontend_.context_length()));
  });
  Route(http, "GET", std::string(kModelPath) + "*", &OpenAiError, [this](const Exchange& exchange) {
    Model(*exchange);
  });
}

void HttpApi::Route(HttpServer& http,
                    const std::string& method,
                    const std::string& path,
                    Error error,
                    HttpServer::Handler handler) {
  http.AddRoute(
      method,
      path,
      [this, error, handler = std::move(handler)](const std::shared_ptr<HttpExchange>& exchange) {
        AddHeaders(*exchange, error);
        handler(exchange);
      },
      method == "POST" ? HttpServer::Runner([this, error](const auto& exchange, auto job) {
        RunFairly(exchange, error, std::move(job));
      })
                       : nullptr);
  if (!cors_.enabled()) return;
  http.AddRoute("OPTIONS", path, [this, method](const std::shared_ptr<HttpExchange>& exchange) {
    cors_.ReplyToPreflight(*exchange, method);
  });
}

// The headers of every answer of an API whose errors have the form of `error`.
void HttpApi::AddHeaders(HttpExchange& exchange, Error error) const {
  cors_.AddHeaders(exchange);
  // Anthropic's name of x-request-id.
  if (error == &MessagesError) exchange.AddHeader("request-id", exchange.request().id);
}

// Bodies are parsed on the same threads as templates and texts, so that one client's large bodies
// do not delay others.
void HttpApi::RunFairly(const std::shared_ptr<HttpExchange>& exchange,
                        Error error,
                        std::function<void()> job) {
  const HttpRequest& request = exchange->request();
  if (frontend_.PostTokenizing(request.client, request.body.size(), std::move(job))) return;
  AddHeaders(*exchange, error);
  const Status stopped(StatusCode::kUnavailable, "this router is shutting down");
  ReplyError(*exchange, stopped, error(stopped));
}

void HttpApi::AddGeneration(HttpServer& http, const std::string& path, Reader reader, Error error) {
  Route(http,
        "POST",
        path,
        error,
        [this, reader, error](const std::shared_ptr<HttpExchange>& exchange) {
          Generate(reader, error, exchange);
        });
}

void HttpApi::Model(HttpExchange& exchange) const {
  const std::string_view path = exchange.request().path;
  const std::string name = PercentDecoded(path.substr(kModelPath.size()));
  const Status known = frontend_.CheckModel(name);
  if (!known.ok()) return ReplyError(exchange, known, OpenAiError(known));
  exchange.Reply(200, kJson, OpenAiModel(name, started_, frontend_.context_length()));
}

void HttpApi::Generate(Reader reader, Error error, const std::shared_ptr<HttpExchange>& exchange) {
  StatusOr<Call> call = Read(reader, exchange->request());
  if (!call.ok()) {
    frontend_.CountRefused(exchange->request().client, call.status());
    return ReplyError(*exchange, call.status(), error(call.status()));
  }
  ApiRequest& request = call->request;
  request.generation.client = exchange->request().client;
  std::vector<std::string> echoes;
  if (request.echo) echoes = PromptTexts(request);
  const auto running =
      std::make_shared<ApiCall>(std::move(call->answer), request, std::move(echoes), exchange);
  if (request.stream) keep_alive_.Watch(running);
  running->Start(frontend_, std::move(request));
}

StatusOr<HttpApi::Call> HttpApi::Read(Reader reader, const HttpRequest& http) const {
  BATON_ASSIGN_OR_RETURN(const Json body, ParseBody(http.body));
  BATON_ASSIGN_OR_RETURN(Call call, (this->*reader)(body));
  BATON_RETURN_IF_ERROR(CheckPrompts(call.request));
  BATON_RETURN_IF_ERROR(ReadTimeoutHeader(http, call.request.generation));
  return call;
}

StatusOr<HttpApi::Call> HttpApi::ReadChat(const Json& body) const {
  return ReadOpenAi(OpenAiKind::kChat, body);
}

StatusOr<HttpApi::Call> HttpApi::ReadCompletion(const Json& body) const {
  return ReadOpenAi(OpenAiKind::kCompletion, body);
}

StatusOr<HttpApi::Call> HttpApi::ReadOpenAi(OpenAiKind kind, const Json& body) const {
  BATON_ASSIGN_OR_RETURN(ApiRequest request, ReadOpenAiRequest(kind, body));
  const char* const prefix = kind == OpenAiKind::kChat ? "chatcmpl-" : "cmpl-";
  auto answer = std::make_unique<OpenAiAnswer>(
      OpenAiHead{.kind = kind,
                 .id = prefix + NewId(),
                 .model = frontend_.NameFor(request.generation.model),
                 .fingerprint = frontend_.fingerprint(),
                 .created = UnixSeconds(),
                 .stops = request.generation.stop,
                 .with_logprobs = request.generation.top_logprobs.has_value(),
                 .with_prompt_logprobs = request.prompt_logprobs,
                 .include_usage = request.include_usage,
                 .continuous_usage = request.continuous_usage});
  return Call{std::move(request), std::move(answer)};
}

StatusOr<HttpApi::Call> HttpApi::ReadResponses(const Json& body) const {
  BATON_ASSIGN_OR_RETURN(ApiRequest request, ReadResponsesRequest(body));
  auto answer = std::make_unique<ResponsesAnswer>(
      NewId(), frontend_.NameFor(request.generation.model), UnixSeconds(), body);
  return Call{std::move(request), std::move(answer)};
}

StatusOr<HttpApi::Call> HttpApi::ReadMessages(const Json& body) const {
  BATON_ASSIGN_OR_RETURN(ApiRequest request, ReadMessagesRequest(MessagesKind::kCreate, body));
  auto answer = std::make_unique<MessagesAnswer>(
      NewId(), frontend_.NameFor(request.generation.model), request.generation.stop);
  return Call{std::move(request), std::move(answer)};
}

StatusOr<HttpApi::Call> HttpApi::ReadEmbeddings(const Json& body) const {
  EmbeddingForm form;
  BATON_ASSIGN_OR_RETURN(ApiRequest request,
                         ReadEmbeddingsRequest(body, frontend_.text().results(), form));
  auto answer =
      std::make_unique<EmbeddingsAnswer>(frontend_.NameFor(request.generation.model), form);
  return Call{std::move(request), std::move(answer)};
}

StatusOr<HttpApi::Call> HttpApi::ReadScore(const Json& body) const {
  ScoreForm form;
  BATON_ASSIGN_OR_RETURN(ApiRequest request,
                         ReadScoreRequest(body, frontend_.text().results(), form));
  return ScoreCall(ScoreAnswer::Kind::kScore, std::move(request), std::move(form));
}

StatusOr<HttpApi::Call> HttpApi::ReadRerank(const Json& body) const {
  ScoreForm form;
  BATON_ASSIGN_OR_RETURN(ApiRequest request,
                         ReadRerankRequest(body, frontend_.text().results(), form));
  return ScoreCall(ScoreAnswer::Kind::kRerank, std::move(request), std::move(form));
}

HttpApi::Call HttpApi::ScoreCall(ScoreAnswer::Kind kind, ApiRequest request, ScoreForm form) const {
  const char* const prefix = kind == ScoreAnswer::Kind::kScore ? "score-" : "rerank-";
  ScoreHead head = {prefix + NewId(), frontend_.NameFor(request.generation.model), UnixSeconds()};
  return {std::move(request),
          std::make_unique<ScoreAnswer>(kind, std::move(head), std::move(form))};
}

// A request with more prompts than max_requests would be refused at every try.
Status HttpApi::CheckPrompts(const ApiRequest& request) const {
  if (std::cmp_less_equal(request.inputs.size(), max_requests_)) return OkStatus();
  const std::string& member = request.generation.names.text;
  return InvalidMember(member,
                       "{} has {} prompts; this router takes at most {} requests at a time "
                       "(max_requests)",
                       member,
                       request.inputs.size(),
                       max_requests_);
}

std::vector<std::string> HttpApi::PromptTexts(const ApiRequest& request) const {
  std::vector<std::string> texts;
  for (const PromptInput& input : request.inputs) {
    const auto* tokens = std::get_if<std::vector<TokenId>>(&input);
    texts.push_back(tokens == nullptr ? std::get<std::string>(input)
                                      : frontend_.text().tokenizer().Decode(
                                            *tokens, request.generation.skip_special_tokens));
  }
  return texts;
}

}  // namespace baton::router
