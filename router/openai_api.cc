#include "router/openai_api.h"

#include <charconv>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/hash.h"
#include "router/openai_call.h"
#include "router/openai_response.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

constexpr const char* kJson = "application/json";
constexpr std::string_view kModelPath = "/v1/models/";

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
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

}  // namespace

OpenAiApi::OpenAiApi(RequestFrontend& frontend, int32_t max_requests)
    : frontend_(frontend), max_requests_(max_requests), started_(UnixSeconds()) {}

void OpenAiApi::AddRoutes(HttpServer& http) {
  http.AddRoute(
      "POST", "/v1/chat/completions", [this](const std::shared_ptr<HttpExchange>& exchange) {
        Generate(OpenAiKind::kChat, exchange);
      });
  http.AddRoute("POST", "/v1/completions", [this](const std::shared_ptr<HttpExchange>& exchange) {
    Generate(OpenAiKind::kCompletion, exchange);
  });
  http.AddRoute("GET", "/v1/models", [this](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Reply(
        200, kJson, OpenAiModels(frontend_.text().name(), started_, frontend_.context_length()));
  });
  http.AddRoute("GET",
                std::string(kModelPath) + "*",
                [this](const std::shared_ptr<HttpExchange>& exchange) { Model(*exchange); });
}

void OpenAiApi::Model(HttpExchange& exchange) const {
  const std::string_view path = exchange.request().path;
  const std::string name = PercentDecoded(path.substr(kModelPath.size()));
  const Status known = frontend_.CheckModel(name);
  if (!known.ok()) return ReplyError(exchange, known);
  exchange.Reply(200, kJson, OpenAiModel(name, started_, frontend_.context_length()));
}

void OpenAiApi::Generate(OpenAiKind kind, const std::shared_ptr<HttpExchange>& exchange) {
  StatusOr<OpenAiRequest> request = ParseOpenAiRequest(kind, exchange->request().body);
  const Status valid = request.ok() ? CheckPrompts(*request) : request.status();
  if (!valid.ok()) {
    frontend_.CountRefused(valid);
    return ReplyError(*exchange, valid);
  }
  request->generation.client = exchange->request().client;
  const char* prefix = kind == OpenAiKind::kChat ? "chatcmpl" : "cmpl";
  OpenAiAnswer answer{kind,
                      fmt::format("{}-{:016x}", prefix, RandomId()),
                      frontend_.text().name(),
                      UnixSeconds(),
                      request->include_usage};
  std::vector<std::string> echoes;
  if (request->echo) echoes = PromptTexts(*request);
  auto call =
      std::make_shared<OpenAiCall>(std::move(answer), *request, std::move(echoes), exchange);
  call->Start(frontend_, *std::move(request));
}

// A request with more prompts than max_requests would be refused at every try.
Status OpenAiApi::CheckPrompts(const OpenAiRequest& request) const {
  if (std::cmp_less_equal(request.inputs.size(), max_requests_)) return OkStatus();
  return InvalidMember("prompt",
                       "prompt has {} prompts; this router takes at most {} requests at a time "
                       "(max_requests)",
                       request.inputs.size(),
                       max_requests_);
}

std::vector<std::string> OpenAiApi::PromptTexts(const OpenAiRequest& request) const {
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
