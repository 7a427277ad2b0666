#include "router/api/api_call.h"

#include <algorithm>
#include <utility>

#include "common/base/retry_after.h"
#include "common/text/utf8.h"

namespace baton::router {
namespace {

constexpr const char* kJson = "application/json";
constexpr Duration kUnknownWait = std::chrono::seconds(1);
constexpr const char* kKeepAlive = ": keep-alive\n\n";

void RemoveReasoning(GenerationDelta& delta) {
  std::erase_if(delta.events,
                [](const ChatEvent& event) { return event.kind == ChatEvent::Kind::kReasoning; });
}

// The output of a request that wants only its prompt: one token (ReadEcho), which is not shown and
// not counted.
void RemoveOutput(GenerationDelta& delta) {
  delta.text.clear();
  delta.tokens.clear();
  delta.logprobs.clear();
  delta.stop_index = -1;
  delta.stop_token.reset();
  if (delta.finish != FinishReason::kNone) delta.finish = FinishReason::kLength;
}

// Whole seconds, as the header allows no less (RFC 9110, section 10.2.3).
std::string RetryAfterHeader(const Status& status) {
  const Duration wait = RetryAfterOf(status).value_or(kUnknownWait);
  return fmt::format("{}",
                     std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(wait).count()));
}

}  // namespace

void ReplyError(HttpExchange& http, const Status& status, const std::string& body) {
  const int code = HttpStatusOf(status);
  if (code == 429 || code == 503) http.AddHeader("Retry-After", RetryAfterHeader(status));
  http.Reply(code, kJson, body);
}

// The observer of one prompt's generation.
class ApiCall::Part final : public GenerationObserver {
 public:
  Part(std::shared_ptr<ApiCall> call, size_t prompt) : call_(std::move(call)), prompt_(prompt) {}

  void OnDelta(GenerationDelta delta) override { call_->OnDelta(prompt_, std::move(delta)); }
  void OnEnd(GenerationEnd end) override { call_->OnEnd(end); }

 private:
  const std::shared_ptr<ApiCall> call_;
  const size_t prompt_;
};

ApiCall::ApiCall(std::unique_ptr<ApiAnswer> answer,
                 const ApiRequest& request,
                 std::vector<std::string> prompts,
                 std::shared_ptr<HttpExchange> http)
    : answer_(std::move(answer)),
      stream_(request.stream),
      include_reasoning_(request.include_reasoning),
      samples_(static_cast<size_t>(request.generation.samples)),
      prompts_(std::move(prompts)),
      prompt_only_(request.prompt_only),
      needs_all_(request.generation.pooling != Pooling::kNone ||
                 !request.generation.labels.empty()),
      with_logprobs_(request.generation.top_logprobs.has_value()),
      http_(std::move(http)),
      choices_(request.inputs.size() * samples_, ApiChoice{.output = OutputBlocks(request.blocks)}),
      begun_(choices_.size(), false),
      prompt_tokens_(request.inputs.size(), 0),
      cached_tokens_(request.inputs.size(), 0),
      prompt_logprobs_(request.inputs.size()),
      running_(request.inputs.size()) {
  for (const std::string& text : prompts_) {
    echoed_.push_back(static_cast<int64_t>(CountCodePoints(text)));
  }
}

void ApiCall::Start(RequestFrontend& frontend, ApiRequest request) {
  const size_t count = request.inputs.size();
  std::vector<std::shared_ptr<Generation>> admitted;
  for (size_t i = 0; i < count; ++i) {
    GenerationRequest one = request.generation;
    one.prompts = static_cast<int32_t>(count);
    one.input = std::move(request.inputs[i]);
    if (count > 1) one.names.text = one.names.tokens = fmt::format("{}[{}]", one.names.text, i);
    auto generation = frontend.Admit(std::move(one), std::make_shared<Part>(shared_from_this(), i));
    if (generation == nullptr) continue;
    Keep(generation);
    admitted.push_back(std::move(generation));
  }
  // A client that disconnects, or reads too slowly, cancels the generations.
  http_->OnDisconnect([weak = weak_from_this()] {
    if (const auto call = weak.lock(); call != nullptr) {
      call->CancelAll(Status(StatusCode::kCancelled, "the client left"));
    }
  });
  for (const auto& generation : admitted) generation->Prepare();
}

void ApiCall::Keep(const std::shared_ptr<Generation>& generation) {
  Status failure;
  {
    std::lock_guard lock(mutex_);
    generations_.push_back(generation);
    failure = failure_;
  }
  if (!failure.ok()) generation->Cancel(failure);
}

void ApiCall::CancelAll(const Status& why) {
  std::vector<std::weak_ptr<Generation>> generations;
  {
    std::lock_guard lock(mutex_);
    generations = generations_;
  }
  for (const auto& weak : generations) {
    if (const auto running = weak.lock(); running != nullptr) running->Cancel(why);
  }
}

void ApiCall::OnDelta(size_t prompt, GenerationDelta delta) {
  const bool more_follows = delta.more_follows;
  std::lock_guard lock(mutex_);
  if (!failure_.ok()) return;
  AddDelta(prompt, std::move(delta));
  if (!more_follows) WriteEvents();
}

void ApiCall::AddDelta(size_t prompt, GenerationDelta delta) {
  const size_t number = prompt * samples_ + static_cast<size_t>(delta.sample);
  if (!include_reasoning_) RemoveReasoning(delta);
  if (prompt_only_) RemoveOutput(delta);
  const bool first = !begun_[number];
  so_far_.prompt_tokens += delta.prompt_tokens - prompt_tokens_[prompt];
  so_far_.account.cached_tokens += delta.cached_tokens - cached_tokens_[prompt];
  prompt_tokens_[prompt] = delta.prompt_tokens;
  cached_tokens_[prompt] = delta.cached_tokens;
  so_far_.generated_tokens += static_cast<int32_t>(delta.tokens.size());
  const bool says_nothing = delta.text.empty() && delta.events.empty() && delta.logprobs.empty() &&
                            delta.finish == FinishReason::kNone;
  if (says_nothing && !first) return;
  begun_[number] = true;
  AddPrompt(prompt, first, delta);
  choices_[number].Add(delta);
  if (!stream_) return;
  choices_[number].logprobs.clear();  // they are sent now, and the end does not repeat them
  AddFirstEvents();
  events_ += answer_->Delta({number, first, delta, choices_[number], so_far_});
}

// The logprobs of a prompt come with the first delta of one of its choices, and belong to all. The
// text of an echoed prompt, and its logprobs, come before those of the choice.
void ApiCall::AddPrompt(size_t prompt, bool first, GenerationDelta& delta) {
  std::vector<TokenLogprobs>& logprobs = prompt_logprobs_[prompt];
  if (!delta.prompt_logprobs.empty()) logprobs = delta.prompt_logprobs;
  if (first) delta.prompt_logprobs = logprobs;
  if (prompts_.empty()) return;
  for (TokenLogprobs& token : delta.logprobs) token.text_offset += echoed_[prompt];
  if (!first) return;
  delta.text.insert(0, prompts_[prompt]);
  if (with_logprobs_)
    delta.logprobs.insert(delta.logprobs.begin(), logprobs.begin(), logprobs.end());
}

void ApiCall::OnEnd(const GenerationEnd& end) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    total_.prompt_tokens += end.prompt_tokens;
    total_.generated_tokens += prompt_only_ ? 0 : end.generated_tokens;
    total_.reasoning_tokens += end.reasoning_tokens;
    total_.account.cached_tokens += end.account.cached_tokens;
    if (end.status.ok() || EndByDeadline(end.status)) {
      if (--running_ == 0) return Complete();
      WriteEvents();
      return;
    }
    failure_ = end.status;
    Fail(end.status);
  }
  CancelAll(Status(StatusCode::kCancelled, "another prompt of the same request failed"));
}

// Whether the answer is what was generated until the deadline.
bool ApiCall::EndByDeadline(const Status& status) {
  if (stream_ || needs_all_ || status.code() != StatusCode::kDeadlineExceeded) return false;
  if (std::find(begun_.begin(), begun_.end(), true) == begun_.end()) return false;
  for (ApiChoice& choice : choices_) choice.EndAtDeadline();
  return true;
}

void ApiCall::Fail(const Status& status) {
  ended_ = true;
  if (!begun_stream_ && events_.empty()) {
    return ReplyError(*http_, status, answer_->Error(status));
  }
  BeginStream();
  for (ApiChoice& choice : choices_) choice.output.End(/*cut=*/true);
  events_ += answer_->Failure(choices_, status);
  http_->Finish(std::move(events_));
}

void ApiCall::Complete() {
  ended_ = true;
  if (!stream_) return http_->Reply(200, kJson, answer_->Body(choices_, total_));
  BeginStream();
  AddFirstEvents();
  events_ += answer_->End(choices_, total_);
  http_->Finish(std::move(events_));
}

void ApiCall::AddFirstEvents() {
  if (!std::exchange(has_first_events_, true)) events_ += answer_->Begin(so_far_);
}

void ApiCall::BeginStream() {
  if (std::exchange(begun_stream_, true)) return;
  http_->AddHeader("Cache-Control", "no-cache");
  http_->Begin(200, "text/event-stream");
}

void ApiCall::WriteEvents() {
  if (events_.empty()) return;
  BeginStream();
  last_write_ = SteadyClock().Now();
  http_->Write(std::exchange(events_, {}));
}

bool ApiCall::KeepAlive(Time since, Time now) {
  std::lock_guard lock(mutex_);
  if (ended_ || !stream_) return false;
  if (last_write_ == Time{}) last_write_ = now;  // the first look at this call
  if (last_write_ > since) return true;
  events_ += kKeepAlive;
  WriteEvents();
  return true;
}

}  // namespace baton::router
