#include "router/grpc/generate_stream_service.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/cluster/wire/request_fields_wire.h"
#include "common/rpc/message_bytes.h"
#include "common/rpc/rpc_status.h"

namespace baton::router {
namespace {

constexpr size_t kMaxUnsentBytes = size_t{4} << 20;

template <class T, class U>
std::optional<T> Maybe(bool has, U value) {
  return has ? std::optional<T>(static_cast<T>(value)) : std::nullopt;
}

v1::FinishReason FinishToProto(FinishReason finish) {
  switch (finish) {
    case FinishReason::kStop:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kNone:
    case FinishReason::kHandedOff:
      break;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

void SetLogprob(const TextLogprob& in, v1::TokenLogprob& out) {
  out.set_token(in.token);
  out.set_logprob(in.logprob);
  out.set_piece(in.piece);
}

void SetAccount(const GenerationEnd& end, v1::GenerateResponse& out) {
  out.mutable_usage()->set_prompt_tokens(end.prompt_tokens);
  out.mutable_usage()->set_cached_tokens(end.account.cached_tokens);
  out.mutable_usage()->set_generated_tokens(end.generated_tokens);
  v1::Timings& timings = *out.mutable_timings();
  timings.set_queue_ms(end.account.queue_ms);
  timings.set_prefill_ms(end.account.prefill_ms);
  timings.set_transfer_ms(end.account.transfer_ms);
  timings.set_ttft_ms(end.account.ttft_ms);
  timings.set_tpot_ms(end.account.tpot_ms);
  timings.set_transfer_bytes(end.account.transfer_bytes);
  timings.set_transfer_gigabytes_per_second(end.account.transfer_gigabytes_per_second);
  timings.set_transport(end.account.transport);
  timings.set_prefill_worker(end.account.prefill_worker);
  timings.set_decode_worker(end.account.decode_worker);
  timings.set_attempts(end.account.attempts);
}

// Appends `next` to `last`, so that the client receives fewer, larger messages. Returns false, and
// changes nothing, when the two cannot be merged.
bool Merge(v1::GenerateResponse& last, v1::GenerateResponse& next) {
  if (next.has_usage()) {
    if (next.has_error()) return false;
    last.mutable_usage()->Swap(next.mutable_usage());
    last.mutable_timings()->Swap(next.mutable_timings());
    return true;
  }
  if (last.sample() != next.sample() || last.finish() != v1::FINISH_REASON_UNSPECIFIED) {
    return false;
  }
  last.mutable_text()->append(next.text());
  last.mutable_token_ids()->MergeFrom(next.token_ids());
  last.mutable_logprobs()->MergeFrom(next.logprobs());
  last.set_finish(next.finish());
  return true;
}

}  // namespace

ChatInput ChatFromProto(const v1::Chat& in) {
  ChatInput chat;
  for (const v1::ChatMessage& message : in.messages()) {
    chat.turns.push_back({message.role(), message.content(), message.extra_json()});
  }
  chat.tools_json = in.tools_json();
  chat.arguments_json = in.template_arguments_json();
  chat.continue_final_message = in.continue_final_message();
  return chat;
}

GrammarInput GrammarFromProto(const v1::Grammar& in) {
  using Kind = GrammarInput::Kind;
  switch (in.kind_case()) {
    case v1::Grammar::kJsonObject:
      return {.kind = in.json_object() ? Kind::kJsonObject : Kind::kNone};
    case v1::Grammar::kJsonSchema:
      return {.kind = Kind::kJsonSchema, .text = in.json_schema(), .member = "grammar.json_schema"};
    case v1::Grammar::kRegex:
      return {.kind = Kind::kRegex, .text = in.regex(), .member = "grammar.regex"};
    case v1::Grammar::kChoice:
      return {.kind = Kind::kChoice,
              .choices = {in.choice().choices().begin(), in.choice().choices().end()},
              .member = "grammar.choice"};
    case v1::Grammar::kEbnf:
      return {.kind = Kind::kEbnf, .text = in.ebnf(), .member = "grammar.ebnf"};
    case v1::Grammar::KIND_NOT_SET:
      break;
  }
  return {};
}

GenerationRequest RequestFromProto(const v1::GenerateRequest& in) {
  GenerationRequest out;
  out.model = in.model();
  if (in.has_text()) out.input = in.text();
  if (in.has_chat()) out.input = ChatFromProto(in.chat());
  if (in.has_tokens()) {
    out.input = std::vector<TokenId>(in.tokens().ids().begin(), in.tokens().ids().end());
  }
  const v1::Sampling& s = in.sampling();
  ReadSamplingFields(s, out.sampling);
  out.sampling.top_k = Maybe<int32_t>(s.has_top_k(), s.top_k());
  out.sampling.seed = Maybe<uint64_t>(s.has_seed(), s.seed());
  for (const auto& [token, bias] : s.logit_bias()) out.sampling.logit_bias.push_back({token, bias});
  std::sort(out.sampling.logit_bias.begin(), out.sampling.logit_bias.end());
  out.max_tokens = Maybe<int32_t>(in.has_max_tokens(), in.max_tokens());
  out.min_tokens = in.min_tokens();
  out.samples = in.samples();
  out.stop.assign(in.stop().begin(), in.stop().end());
  out.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  out.ignore_eos = in.ignore_eos();
  out.top_logprobs = Maybe<int32_t>(in.has_top_logprobs(), in.top_logprobs());
  ReadStatedFields(in, out);
  out.timeout = std::chrono::milliseconds(in.timeout_ms());
  out.skip_special_tokens = in.skip_special_tokens();
  out.add_special_tokens = Maybe<bool>(in.has_add_special_tokens(), in.add_special_tokens());
  out.include_stop_string = in.include_stop_string();
  out.output_grammar = GrammarFromProto(in.grammar());
  return out;
}

GenerateStream* GenerateStream::Begin(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer& bytes,
                                      const CallGate& gate,
                                      RequestFrontend& frontend) {
  v1::GenerateRequest request;
  const StatusOr<std::string> client = gate.Admit(*context);
  const Status parsed = client.ok() ? ParseMessage(bytes, request) : client.status();
  const std::shared_ptr<GenerateStream> stream(new GenerateStream(request.echo_tokens()));
  stream->self_ = stream;
  if (!parsed.ok()) {
    frontend.CountRefused(client.value_or(""), parsed);
    stream->end_ = parsed;
    stream->Advance();
    return stream.get();
  }
  GenerationRequest generation = RequestFromProto(request);
  generation.client = *client;
  const auto deadline = context->deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    const auto left = deadline - std::chrono::system_clock::now();
    const Duration most = std::max<Duration>(std::chrono::milliseconds(1), left);
    const bool own = generation.timeout > Duration::zero();
    generation.timeout = own ? std::min(generation.timeout, most) : most;
  }
  auto running = frontend.Start(std::move(generation), stream);
  std::lock_guard lock(stream->mutex_);
  stream->generation_ = std::move(running);
  return stream.get();
}

void GenerateStream::OnDelta(GenerationDelta delta) {
  v1::GenerateResponse response;
  response.set_sample(delta.sample);
  response.set_text(std::move(delta.text));
  if (echo_tokens_) response.mutable_token_ids()->Add(delta.tokens.begin(), delta.tokens.end());
  for (const TokenLogprobs& token : delta.logprobs) {
    v1::Logprobs& out = *response.add_logprobs();
    SetLogprob(token.chosen, *out.mutable_chosen());
    for (const TextLogprob& top : token.top) SetLogprob(top, *out.add_top());
  }
  response.set_finish(FinishToProto(delta.finish));
  const bool empty = response.text().empty() && response.token_ids().empty() &&
                     response.logprobs().empty() &&
                     response.finish() == v1::FINISH_REASON_UNSPECIFIED;
  if (!empty) Enqueue(std::move(response));
  if (!delta.more_follows) Advance();
}

void GenerateStream::OnEnd(GenerationEnd end) {
  bool began;
  {
    std::lock_guard lock(mutex_);
    began = began_;
  }
  if (end.status.ok() || began) {
    v1::GenerateResponse last;
    SetAccount(end, last);
    if (!end.status.ok()) {
      last.set_finish(v1::FINISH_REASON_ERROR);
      last.mutable_error()->set_code(static_cast<int32_t>(end.status.code()));
      last.mutable_error()->set_message(std::string(Message(end.status)));
      last.mutable_error()->set_retryable(end.retryable);
    }
    Enqueue(std::move(last));
    end.status = OkStatus();
  }
  {
    std::lock_guard lock(mutex_);
    end_ = end.status;
  }
  Advance();
}

void GenerateStream::Enqueue(v1::GenerateResponse response) {
  bool overflow = false;
  {
    std::lock_guard lock(mutex_);
    began_ = true;
    if (broken_ || too_slow_.has_value()) return;
    const size_t bytes = response.ByteSizeLong();
    queued_bytes_ += bytes;
    if (!queue_.empty() && Merge(queue_.back().response, response)) {
      queue_.back().bytes += bytes;
    } else {
      queue_.push_back({std::move(response), bytes});
    }
    overflow = queued_bytes_ > kMaxUnsentBytes;
    if (overflow) {
      queue_.clear();
      queued_bytes_ = 0;
      too_slow_ = MakeStatus(StatusCode::kResourceExhausted,
                             "the client left more than {} bytes of its answer unread",
                             kMaxUnsentBytes);
    }
  }
  if (overflow) CancelGeneration(*too_slow_);
}

void GenerateStream::Advance() {
  bool writes;
  std::optional<Status> finish;
  {
    std::lock_guard lock(mutex_);
    if (busy_ || finished_) return;
    writes = !queue_.empty() && !broken_;
    if (writes) {
      writing_ = ToBytes(queue_.front().response);
      queued_bytes_ -= queue_.front().bytes;
      queue_.pop_front();
      busy_ = true;
    }
    const bool last = !writes || queue_.empty();
    if (last && end_.has_value()) {
      finished_ = true;
      finish = too_slow_.has_value() ? *too_slow_ : *end_;
    }
  }
  if (writes && finish.has_value()) {
    StartWriteAndFinish(&writing_, grpc::WriteOptions(), ToGrpc(*finish));
  } else if (writes) {
    StartWrite(&writing_);
  } else if (finish.has_value()) {
    Finish(ToGrpc(*finish));
  }
}

void GenerateStream::OnWriteDone(bool ok) {
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    broken_ = broken_ || !ok;
  }
  Advance();
}

void GenerateStream::OnCancel() {
  {
    std::lock_guard lock(mutex_);
    broken_ = true;
  }
  CancelGeneration(Status(StatusCode::kCancelled, "the client left"));
}

void GenerateStream::CancelGeneration(const Status& why) {
  std::shared_ptr<Generation> generation;
  {
    std::lock_guard lock(mutex_);
    generation = generation_;
  }
  if (generation != nullptr) generation->Cancel(why);
}

void GenerateStream::OnDone() {
  std::shared_ptr<GenerateStream> self;
  std::lock_guard lock(mutex_);
  generation_.reset();
  self = std::move(self_);
}

}  // namespace baton::router
