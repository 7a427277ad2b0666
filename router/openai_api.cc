#include "router/openai_api.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/hash.h"
#include "router/openai_response.h"

namespace baton::router {
namespace {

constexpr const char* kJson = "application/json";

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

void ReplyError(HttpExchange& exchange, const Status& status) {
  const int code = HttpStatusOf(status);
  if (code == 429 || code == 503) exchange.AddHeader("Retry-After", "1");
  exchange.Reply(code, kJson, OpenAiError(status));
}

// The observer of one generation that answers one HTTP request: a body at the end, or a stream.
// Errors before the first token are HTTP statuses.
class OpenAiCall final : public GenerationObserver {
 public:
  OpenAiCall(OpenAiAnswer answer, const OpenAiRequest& request, std::shared_ptr<HttpExchange> http)
      : answer_(std::move(answer)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        with_logprobs_(request.generation.top_logprobs.has_value()),
        http_(std::move(http)),
        choices_(request.generation.samples),
        begun_(request.generation.samples, false) {}

  void OnDelta(GenerationDelta delta) override {
    const bool says_nothing =
        delta.text.empty() && delta.logprobs.empty() && delta.finish == FinishReason::kNone;
    if (stream_) {
      const bool first = !begun_[delta.sample];
      if (says_nothing && !first) return;
      begun_[delta.sample] = true;
      Write(OpenAiChunk(answer_, delta, first));
      return;
    }
    OpenAiChoice& choice = choices_[delta.sample];
    choice.text += delta.text;
    choice.finish = delta.finish;
    for (TokenLogprobs& token : delta.logprobs) choice.logprobs.push_back(std::move(token));
  }

  void OnEnd(GenerationEnd end) override {
    if (!end.status.ok() && !streaming_) return ReplyError(*http_, end.status);
    if (!stream_) {
      return http_->Reply(200, kJson, OpenAiBody(answer_, choices_, with_logprobs_, end));
    }
    if (!end.status.ok()) {
      Write(OpenAiErrorChunk(end.status));
    } else if (include_usage_) {
      Write(OpenAiUsageChunk(answer_, end));
    }
    Write(OpenAiDone());
    http_->Finish();
  }

 private:
  // A client that went away, or reads too slowly, ends the generation through OnDisconnect.
  void Write(std::string event) {
    if (!streaming_) {
      streaming_ = true;
      http_->AddHeader("Cache-Control", "no-cache");
      http_->Begin(200, "text/event-stream");
    }
    http_->Write(std::move(event));
  }

  const OpenAiAnswer answer_;
  const bool stream_;
  const bool include_usage_;
  const bool with_logprobs_;
  const std::shared_ptr<HttpExchange> http_;
  std::vector<OpenAiChoice> choices_;
  std::vector<bool> begun_;
  bool streaming_ = false;
};

}  // namespace

OpenAiApi::OpenAiApi(RequestFrontend& frontend) : frontend_(frontend), started_(UnixSeconds()) {}

void OpenAiApi::AddRoutes(HttpServer& http) {
  http.AddRoute("POST", "/v1/chat/completions", [this](std::shared_ptr<HttpExchange> exchange) {
    Generate(OpenAiKind::kChat, exchange);
  });
  http.AddRoute("POST", "/v1/completions", [this](std::shared_ptr<HttpExchange> exchange) {
    Generate(OpenAiKind::kCompletion, exchange);
  });
  http.AddRoute("GET", "/v1/models", [this](std::shared_ptr<HttpExchange> exchange) {
    exchange->Reply(200, kJson, Models());
  });
}

void OpenAiApi::Generate(OpenAiKind kind, const std::shared_ptr<HttpExchange>& exchange) {
  StatusOr<OpenAiRequest> request = ParseOpenAiRequest(kind, exchange->request().body);
  if (!request.ok()) return ReplyError(*exchange, request.status());
  const char* prefix = kind == OpenAiKind::kChat ? "chatcmpl" : "cmpl";
  OpenAiAnswer answer{
      kind, fmt::format("{}-{:016x}", prefix, RandomId()), frontend_.text().name(), UnixSeconds()};
  auto call = std::make_shared<OpenAiCall>(std::move(answer), *request, exchange);
  const std::shared_ptr<Generation> generation =
      frontend_.Start(std::move(request->generation), std::move(call));
  if (generation == nullptr) return;
  exchange->OnDisconnect([weak = std::weak_ptr<Generation>(generation)] {
    if (const auto running = weak.lock(); running != nullptr) {
      running->Cancel(Status(StatusCode::kCancelled, "the client left"));
    }
  });
}

std::string OpenAiApi::Models() const {
  const nlohmann::ordered_json model = {{"id", frontend_.text().name()},
                                        {"object", "model"},
                                        {"created", started_},
                                        {"owned_by", "baton"},
                                        {"context_length", frontend_.context_length()}};
  return nlohmann::ordered_json{{"object", "list"}, {"data", {model}}}.dump();
}

}  // namespace baton::router
