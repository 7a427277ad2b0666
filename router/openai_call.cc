#include "router/openai_call.h"

#include <utility>

namespace baton::router {
namespace {

constexpr const char* kJson = "application/json";

}  // namespace

void ReplyError(HttpExchange& http, const Status& status) {
  const int code = HttpStatusOf(status);
  if (code == 429 || code == 503) http.AddHeader("Retry-After", "1");
  http.Reply(code, kJson, OpenAiError(status));
}

// The observer of one prompt's generation.
class OpenAiCall::Part final : public GenerationObserver {
 public:
  Part(std::shared_ptr<OpenAiCall> call, size_t prompt) : call_(std::move(call)), prompt_(prompt) {}

  void OnDelta(GenerationDelta delta) override { call_->OnDelta(prompt_, std::move(delta)); }
  void OnEnd(GenerationEnd end) override { call_->OnEnd(end); }

 private:
  const std::shared_ptr<OpenAiCall> call_;
  const size_t prompt_;
};

OpenAiCall::OpenAiCall(OpenAiAnswer answer,
                       const OpenAiRequest& request,
                       std::vector<std::string> prompts,
                       std::shared_ptr<HttpExchange> http)
    : answer_(std::move(answer)),
      stream_(request.stream),
      with_logprobs_(request.generation.top_logprobs.has_value()),
      samples_(static_cast<size_t>(request.generation.samples)),
      prompts_(std::move(prompts)),
      http_(std::move(http)),
      choices_(request.inputs.size() * samples_),
      begun_(choices_.size(), false),
      running_(request.inputs.size()) {}

void OpenAiCall::Start(RequestFrontend& frontend, OpenAiRequest request) {
  const size_t count = request.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    GenerationRequest one = request.generation;
    one.input = std::move(request.inputs[i]);
    if (count > 1) one.names.text = one.names.tokens = fmt::format("prompt[{}]", i);
    Keep(frontend.Start(std::move(one), std::make_shared<Part>(shared_from_this(), i)));
  }
  // A client that disconnects, or reads too slowly, cancels the generations.
  http_->OnDisconnect([weak = weak_from_this()] {
    if (const auto call = weak.lock(); call != nullptr) {
      call->CancelAll(Status(StatusCode::kCancelled, "the client left"));
    }
  });
}

void OpenAiCall::Keep(const std::shared_ptr<Generation>& generation) {
  if (generation == nullptr) return;
  Status failure;
  {
    std::lock_guard lock(mutex_);
    generations_.push_back(generation);
    failure = failure_;
  }
  if (!failure.ok()) generation->Cancel(failure);
}

void OpenAiCall::CancelAll(const Status& why) {
  std::vector<std::weak_ptr<Generation>> generations;
  {
    std::lock_guard lock(mutex_);
    generations = generations_;
  }
  for (const auto& weak : generations) {
    if (const auto running = weak.lock(); running != nullptr) running->Cancel(why);
  }
}

void OpenAiCall::OnDelta(size_t prompt, GenerationDelta delta) {
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  const size_t number = prompt * samples_ + static_cast<size_t>(delta.sample);
  delta.sample = static_cast<int32_t>(number);
  const bool first = !begun_[number];
  const bool says_nothing =
      delta.text.empty() && delta.logprobs.empty() && delta.finish == FinishReason::kNone;
  if (says_nothing && !first) return;
  begun_[number] = true;
  if (first && !prompts_.empty()) delta.text.insert(0, prompts_[prompt]);
  if (stream_) return Write(OpenAiChunk(answer_, delta, first));
  OpenAiChoice& choice = choices_[number];
  choice.text += delta.text;
  choice.finish = delta.finish;
  for (TokenLogprobs& token : delta.logprobs) choice.logprobs.push_back(std::move(token));
}

void OpenAiCall::OnEnd(const GenerationEnd& end) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    total_.prompt_tokens += end.prompt_tokens;
    total_.generated_tokens += end.generated_tokens;
    total_.account.cached_tokens += end.account.cached_tokens;
    if (end.status.ok()) {
      if (--running_ == 0) Complete();
      return;
    }
    failure_ = end.status;
    Fail(end.status);
  }
  CancelAll(Status(StatusCode::kCancelled, "another prompt of the same request failed"));
}

void OpenAiCall::Fail(const Status& status) {
  if (!streaming_) return ReplyError(*http_, status);
  Write(OpenAiErrorChunk(status));
  Write(OpenAiDone());
  http_->Finish();
}

void OpenAiCall::Complete() {
  if (!stream_) {
    return http_->Reply(200, kJson, OpenAiBody(answer_, choices_, with_logprobs_, total_));
  }
  if (answer_.include_usage) Write(OpenAiUsageChunk(answer_, total_));
  Write(OpenAiDone());
  http_->Finish();
}

void OpenAiCall::Write(std::string event) {
  if (!streaming_) {
    streaming_ = true;
    http_->AddHeader("Cache-Control", "no-cache");
    http_->Begin(200, "text/event-stream");
  }
  http_->Write(std::move(event));
}

}  // namespace baton::router
