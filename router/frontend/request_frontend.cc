#include "router/frontend/request_frontend.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <utility>

#include "common/base/exception_border.h"
#include "common/base/hash.h"
#include "common/kvcache/block_hash.h"
#include "common/log/log.h"
#include "router/frontend/request_input.h"
#include "router/request_error.h"
#include "router/text/output_grammar.h"
#include "router/text/sample_text.h"
#include "router/text/token_logprobs.h"

namespace baton::router {
namespace {

constexpr Duration kStopWait = std::chrono::milliseconds(500);

const Logger kLog("router");

// A prompt that is too long is tokenised up to this number of tokens, so that the error can report
// its length.
int64_t MaxCountedTokens(int32_t context) {
  return 2 * int64_t{context};
}

}  // namespace

// One generation, from tokenising to its last event.
class RequestFrontend::Running final : public Generation,
                                       public RequestSink,
                                       public std::enable_shared_from_this<Running> {
 public:
  Running(RequestFrontend& frontend,
          RequestId id,
          GenerationRequest request,
          std::shared_ptr<CallerTicket> ticket,
          std::shared_ptr<GenerationObserver> observer)
      : frontend_(frontend),
        id_(id),
        arrival_(frontend.clock_.Now()),
        request_(std::move(request)),
        ticket_(std::move(ticket)),
        observer_(std::move(observer)) {}

  void Prepare() override {
    if (const auto thrown = CaughtFrom([this] { MakeAndSubmit(); })) FailBy(*thrown);
  }

  // Called on this request's delivery thread.
  void OnEvents(std::vector<ClientEvent> events) override {
    if (failed_) return;
    if (const auto thrown = CaughtFrom([&] { Take(events); })) FailBy(*thrown);
  }

  void Cancel(const Status& why) override {
    left_ = true;
    std::lock_guard lock(mutex_);
    if (cancelled_.has_value()) return;
    cancelled_ = why;
    if (submitted_) frontend_.core_.Cancel(id_, why);
  }

 private:
  void MakeAndSubmit() {
    const StatusOr<std::shared_ptr<RequestSpec>> spec = MakeSpecUnlessCancelled();
    if (!spec.ok()) return EndWith(spec.status());
    prompt_tokens_ = static_cast<int32_t>((*spec)->prompt.size());
    first_prompt_token_ = *(*spec)->prompt.begin();
    const auto* chat = std::get_if<ChatInput>(&request_.input);
    SampleTextOptions options{
        .skip_special = request_.skip_special_tokens,
        .continues_text = chat == nullptr || chat->continue_final_message,
        .logprobs = request_.top_logprobs.has_value(),
        .min_tokens = (*spec)->min_tokens,
        .include_stop = request_.include_stop_string,
    };
    if (chat != nullptr && request_.chat_output.has_value()) {
      const ModelText& text = frontend_.text_;
      options.chat = text.ParserOptions(*chat, *request_.chat_output, (*spec)->prompt);
      options.chat_tokens = text.chat_tokens();
      options.one_call = request_.chat_output->one_call;
    }
    StatusOr<StopStrings> strings = StopStrings::Create(request_.stop);
    if (!strings.ok()) return EndWith(AtMember(Annotate(strings.status(), "stop"), "stop"));
    const auto stops = std::make_shared<const StopStrings>(*std::move(strings));
    for (int32_t i = 0; i < (*spec)->samples; ++i) {
      samples_.emplace_back(frontend_.text_.tokenizer(), stops, options);
    }
    bool cancelled;
    {
      std::lock_guard lock(mutex_);
      cancelled = cancelled_.has_value();
      submitted_ = !cancelled;
      if (submitted_) frontend_.core_.Submit(*spec, shared_from_this());
    }
    if (cancelled) EndWith(*cancelled_);
  }

  void Take(std::vector<ClientEvent>& events) {
    std::vector<GenerationDelta> deltas(samples_.size());
    std::vector<int32_t> tokens(samples_.size(), 0);
    std::vector<bool> touched(samples_.size(), false);
    for (ClientEvent& event : events) {
      auto* output = std::get_if<OutputToken>(&event);
      if (output == nullptr) continue;
      SampleText& sample = samples_[output->sample];
      if (sample.ended()) continue;
      GenerationDelta& delta = deltas[output->sample];
      touched[output->sample] = true;
      delta.sample = output->sample;
      delta.prompt_tokens = prompt_tokens_;
      cached_tokens_ = std::max(cached_tokens_, output->cached_tokens);
      delta.cached_tokens = cached_tokens_;
      tokens[output->sample] += output->token.has_value() ? 1 : 0;
      AddPromptLogprobs(*output, delta);
      delta.pooled = std::move(output->pooled);
      const size_t logprobs = delta.logprobs.size();
      sample.Append(*output, delta);
      if (delta.logprobs.size() > logprobs) delta.logprobs.back().events = delta.events.size();
      if (EndsAtStopToken(*output) && !sample.stopped()) delta.stop_token = output->token->token;
      if (sample.stopped()) frontend_.core_.StopSample(id_, output->sample);
    }
    CountTokens(tokens);
    auto* outcome = std::get_if<Outcome>(&events.back());
    auto left = std::ranges::count(touched, true);
    for (size_t i = 0; i < deltas.size(); ++i) {
      if (!touched[i]) continue;
      deltas[i].more_follows = --left > 0 || outcome != nullptr;
      observer_->OnDelta(std::move(deltas[i]));
    }
    if (outcome != nullptr) End(std::move(*outcome));
  }

  bool ends_with_prompt() const {
    return request_.pooling != Pooling::kNone || !request_.labels.empty();
  }

  // Retries may compute them again.
  void AddPromptLogprobs(const OutputToken& output, GenerationDelta& delta) {
    const std::optional<TokenId> first = std::exchange(first_prompt_token_, std::nullopt);
    if (!first.has_value() || !request_.prompt_logprobs.has_value()) return;
    delta.prompt_logprobs = LogprobsOfPrompt(frontend_.text_.tokenizer(), *first, output.prompt);
  }

  // Whether the output is a stop token that the client chose.
  bool EndsAtStopToken(const OutputToken& output) const {
    return output.finish == FinishReason::kStop && output.token.has_value() &&
           std::ranges::count(request_.stop_token_ids, output.token->token) > 0;
  }

  // Ends this request after an exception, for its client and on its workers. The thread's other
  // requests continue.
  void FailBy(const std::string& thrown) {
    failed_ = true;
    kLog.Error("request {}: the router failed to handle it: {}", id_, thrown);
    const Status why(StatusCode::kInternal,
                     "the router failed to handle this request; its log says why");
    bool submitted;
    {
      std::lock_guard lock(mutex_);
      submitted = submitted_;
    }
    // The core counts the end of a submitted request.
    submitted ? frontend_.core_.Cancel(id_, why) : frontend_.probe_.OnRejected(why);
    if (ended_) return;
    GenerationEnd end;
    end.status = why;
    EndOnce(std::move(end));
  }

  void EndOnce(GenerationEnd end) {
    ended_ = true;
    if (ticket_ != nullptr) ticket_->CountEnd(end.generated_tokens, end.status);
    ticket_.reset();
    if (const auto thrown = CaughtFrom([&] { observer_->OnEnd(std::move(end)); })) {
      kLog.Error("request {}: its end could not be delivered: {}", id_, *thrown);
    }
    frontend_.Ended();
  }

  StatusOr<std::shared_ptr<RequestSpec>> MakeSpecUnlessCancelled() {
    {
      std::lock_guard lock(mutex_);
      if (cancelled_.has_value()) return *cancelled_;
    }
    auto spec =
        frontend_.MakeSpec(request_, id_, arrival_, ticket_.get(), [this] { return left_.load(); });
    std::lock_guard lock(mutex_);
    if (cancelled_.has_value()) return *cancelled_;
    return spec;
  }

  // Ends a request that was not submitted to the core.
  void EndWith(const Status& status) {
    frontend_.probe_.OnRejected(status);
    GenerationEnd end;
    end.status = status;
    EndOnce(std::move(end));
  }

  // `tokens`: for each sample the number of tokens that arrived together.
  void CountTokens(const std::vector<int32_t>& tokens) {
    const Time now = frontend_.clock_.Now();
    last_token_.resize(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == 0) continue;
      const std::optional<Time> before = std::exchange(last_token_[i], now);
      if (before.has_value()) frontend_.probe_.OnTokens(now - *before, tokens[i]);
    }
  }

  void End(Outcome outcome) {
    GenerationEnd end;
    end.status = outcome.status;
    end.retryable = outcome.retryable;
    end.prompt_tokens = prompt_tokens_;
    for (size_t i = 0; i < samples_.size(); ++i) {
      if (!ends_with_prompt()) end.generated_tokens += samples_[i].token_count();
      end.reasoning_tokens += samples_[i].reasoning_token_count();
      if (samples_[i].ended()) continue;
      // The request failed before this sample ended. The text that was held back is valid output.
      GenerationDelta rest;
      rest.sample = static_cast<int32_t>(i);
      rest.prompt_tokens = prompt_tokens_;
      rest.cached_tokens = cached_tokens_;
      rest.more_follows = true;
      samples_[i].Flush(rest);
      if (!rest.text.empty() || !rest.events.empty()) observer_->OnDelta(std::move(rest));
    }
    end.account = std::move(outcome.account);
    if (end.status.ok()) frontend_.probe_.OnServed(frontend_.clock_.Now() - arrival_);
    EndOnce(std::move(end));
  }

  RequestFrontend& frontend_;
  const RequestId id_;
  const Time arrival_;
  const GenerationRequest request_;
  std::shared_ptr<CallerTicket> ticket_;  // null when clients need no key, and after the end
  const std::shared_ptr<GenerationObserver> observer_;
  std::vector<SampleText> samples_;
  std::vector<std::optional<Time>> last_token_;  // per sample
  int32_t prompt_tokens_ = 0;
  int32_t cached_tokens_ = 0;                  // once the first token has arrived
  std::optional<TokenId> first_prompt_token_;  // until the logprobs of the prompt are delivered
  // Used by the thread that has the request: first a tokenizer thread, then its delivery thread.
  bool failed_ = false;  // an exception was thrown: further events are dropped
  bool ended_ = false;   // observer_->OnEnd was called

  std::mutex mutex_;
  bool submitted_ = false;
  std::optional<Status> cancelled_;
  std::atomic<bool> left_{false};  // cancelled_ is set or about to be; readable without mutex_
};

RequestFrontend::RequestFrontend(const FrontendOptions& options,
                                 const ModelText& text,
                                 CoreLoop& core,
                                 const Clock& clock,
                                 RouterProbe& probe)
    : options_(options),
      text_(text),
      core_(core),
      clock_(clock),
      probe_(probe),
      limits_{.vocabulary = text.vocabulary()},
      caller_limits_(options.callers, clock),
      tokenizers_("tokenize", options.tokenizer_threads) {}

int32_t RequestFrontend::context_length() const {
  const std::optional<ClusterIdentity> cluster = core_.identity();
  if (!cluster.has_value() || cluster->context_length <= 0) return text_.context_length();
  return std::min(text_.context_length(), cluster->context_length);
}

std::string RequestFrontend::fingerprint() const {
  const std::optional<ClusterIdentity> cluster = core_.identity();
  return cluster.has_value() ? fmt::format("fp_{}", cluster->fingerprint) : "";
}

std::vector<std::string> RequestFrontend::model_names() const {
  std::vector<std::string> names = {text_.name()};
  for (const std::string& alias : options_.aliases) {
    if (alias != text_.name()) names.push_back(alias);
  }
  return names;
}

Status RequestFrontend::CheckModel(const std::string& model) const {
  if (model.empty() || model == text_.name()) return OkStatus();
  if (std::ranges::find(options_.aliases, model) != options_.aliases.end()) return OkStatus();
  const Status unknown = MakeStatus(StatusCode::kNotFound,
                                    "model \"{}\" is not served here; this cluster serves \"{}\"",
                                    Shown(model),
                                    text_.name());
  return AtMember(WithReason(unknown, reason::kModelNotFound), "model");
}

bool RequestFrontend::PostTokenizing(const std::string& client,
                                     size_t bytes,
                                     std::function<void()> work) {
  return tokenizers_.Post(client, bytes, std::move(work));
}

std::shared_ptr<Generation> RequestFrontend::Start(GenerationRequest request,
                                                   std::shared_ptr<GenerationObserver> observer) {
  const std::string client = request.client;
  const size_t bytes = InputBytes(request);
  const bool at_once = IsShort(request, bytes);
  auto generation = Admit(std::move(request), std::move(observer));
  if (generation == nullptr) return nullptr;
  if (at_once) {
    generation->Prepare();
  } else {
    PostTokenizing(client, bytes, [generation] { generation->Prepare(); });
  }
  return generation;
}

std::shared_ptr<Generation> RequestFrontend::Admit(GenerationRequest request,
                                                   std::shared_ptr<GenerationObserver> observer) {
  bool draining;
  {
    std::lock_guard lock(mutex_);
    draining = draining_;
    if (!draining) ++running_;
  }
  StatusOr<std::shared_ptr<CallerTicket>> ticket =
      draining ? Status(StatusCode::kUnavailable, "this router is shutting down")
      : request.pinned.has_value() ? std::shared_ptr<CallerTicket>()
                                   : caller_limits_.Admit(request.client, request.prompts);
  if (!ticket.ok()) {
    GenerationEnd end;
    end.status = ticket.status();
    end.retryable = ticket.status().code() != StatusCode::kInvalidArgument;
    probe_.OnRejected(end.status);
    observer->OnEnd(std::move(end));
    if (!draining) Ended();
    return nullptr;
  }
  const RequestId id(options_.tag | requests_.fetch_add(1));
  return std::make_shared<Running>(
      *this, id, std::move(request), *std::move(ticket), std::move(observer));
}

void RequestFrontend::Ended() {
  std::lock_guard lock(mutex_);
  if (--running_ == 0) idle_.notify_all();
}

bool RequestFrontend::Drain(Duration limit) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return idle_.wait_for(lock, limit, [&] { return running_ == 0; });
}

void RequestFrontend::Stop() {
  Drain(Duration::zero());
  const Status why(StatusCode::kUnavailable, "this router is shutting down");
  core_.Post([why](RouterCore& core, Time now) { core.CancelAll(why, now); });
  Drain(kStopWait);
  tokenizers_.Stop();
}

// Checks that prompt and answer fit into the context, and sets max_tokens and min_tokens. Without
// max_tokens an answer may fill the context, up to the limit of the workers' KV memory. Needs the
// prompt and the number of samples in `spec`. The errors have the words of Anthropic ("prompt is
// too long") and OpenAI ("this model's maximum context length is"), by which client libraries know
// them.
Status RequestFrontend::SetLengths(const GenerationRequest& request, RequestSpec& spec) const {
  const auto too_long = [&](std::string_view member, const Status& status) {
    return AtMember(WithReason(status, reason::kContextLengthExceeded), member);
  };
  const auto length = static_cast<int64_t>(spec.prompt.size());
  const int32_t context = context_length();
  if (length >= context) {
    const bool all = length <= MaxCountedTokens(context) ||
                     std::holds_alternative<std::vector<TokenId>>(request.input);
    return too_long(
        InputMember(request),
        InvalidArgument("the prompt is too long: it has {}{} tokens, but this model's maximum "
                        "context length is {} tokens, and at least one must be left for the answer",
                        all ? "" : "more than ",
                        all ? length : MaxCountedTokens(context),
                        context));
  }
  const auto room = static_cast<int32_t>(context - length);
  if (request.max_tokens.value_or(0) > room) {
    return too_long(
        request.names.max_tokens,
        InvalidArgument("the prompt has {} tokens and {} is {}, but this model's maximum "
                        "context length is {} tokens",
                        length,
                        request.names.max_tokens,
                        *request.max_tokens,
                        context));
  }
  if (request.min_tokens > room) {
    return too_long(
        "min_tokens",
        InvalidArgument("the prompt has {} tokens and min_tokens is {}, but this model's "
                        "maximum context length is {} tokens",
                        length,
                        request.min_tokens,
                        context));
  }
  // Without max_tokens the answer is limited to the tokens that the workers can hold.
  const std::optional<int32_t> held = core_.decode_arenas().OutputRoom(length, spec.samples);
  const int32_t longest =
      std::min({room, held.value_or(room), request.default_max_tokens.value_or(room)});
  spec.max_tokens = request.max_tokens.value_or(longest);
  spec.min_tokens = std::min(request.min_tokens, spec.max_tokens);
  return OkStatus();
}

// Tools are refused when the router could not recognise calls in the output.
Status RequestFrontend::CheckTools(const GenerationRequest& request) const {
  const bool offered = request.chat_output.has_value() && request.chat_output->calls;
  if (!offered || text_.formats().calls != ToolCallFormat::kNone) return OkStatus();
  return WithReason(InvalidMember("tools",
                                  "tools are not supported: {} (router setting tool_call_format)",
                                  text_.formats().WhyNoCalls()),
                    reason::kUnsupportedParameter);
}

StatusOr<std::shared_ptr<RequestSpec>> RequestFrontend::MakeSpec(
    const GenerationRequest& request,
    RequestId id,
    Time arrival,
    const CallerTicket* ticket,
    std::function<bool()> cancelled) const {
  BATON_RETURN_IF_ERROR(CheckModel(request.model));
  BATON_RETURN_IF_ERROR(CheckRequest(request, limits_));
  BATON_RETURN_IF_ERROR(CheckTools(request));
  auto spec = std::make_shared<RequestSpec>();
  spec->id = id;
  const TextLimits limits{.context_length = context_length(),
                          .max_tokens = static_cast<size_t>(MaxCountedTokens(context_length())),
                          .cancelled = std::move(cancelled)};
  BATON_ASSIGN_OR_RETURN(spec->prompt, text_.Encode(request, limits));
  if (spec->prompt.empty()) {
    return InvalidArgument("the prompt has no tokens; it needs at least one");
  }
  spec->samples = std::max(1, request.samples);
  spec->pinned = request.pinned;
  BATON_RETURN_IF_ERROR(SetLengths(request, *spec));
  spec->sampling = ResolveSampling(request, options_.sampling, RandomId());
  BATON_RETURN_IF_ERROR(CheckPromptLogprobs(request, spec->prompt.size()));
  spec->prompt_logprobs = request.prompt_logprobs.value_or(-1);
  spec->pooling = request.pooling;
  spec->labels = request.labels;
  spec->stop_tokens = request.stop_token_ids;
  if (!request.ignore_eos) {
    const std::vector<TokenId>& ends = text_.end_tokens();
    spec->stop_tokens.insert(spec->stop_tokens.end(), ends.begin(), ends.end());
  }
  static_cast<PassedOptions&>(*spec) = request;
  BATON_ASSIGN_OR_RETURN(spec->grammar, OutputGrammar(request, text_, spec->prompt));
  if (ticket != nullptr) {
    BATON_RETURN_IF_ERROR(ticket->Apply(*spec, request.max_tokens.has_value()));
  }
  spec->client_tag = Xxh3(std::as_bytes(std::span(request.client)));
  spec->arrival = arrival;
  spec->own_deadline = request.timeout > Duration::zero();
  spec->deadline = arrival + (spec->own_deadline ? request.timeout : options_.default_timeout);
  if (const std::optional<ClusterIdentity> cluster = core_.identity(); cluster.has_value()) {
    spec->hashes = BlockHashes(spec->prompt,
                               cluster->block_tokens,
                               {options_.hash_secret, cluster->fingerprint, spec->cache_salt});
  }
  return spec;
}

}  // namespace baton::router
