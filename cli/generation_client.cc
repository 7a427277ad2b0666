#include "cli/generation_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include "cli/endpoint_channel.h"
#include "cli/reachability.h"
#include "common/cluster/wire/request_fields_wire.h"
#include "common/rpc/rpc_status.h"
#include "common/text/utf8.h"
#include "proto/generation.grpc.pb.h"

namespace baton {
namespace {

constexpr auto kShortCall = std::chrono::seconds(10);

Status CheckUtf8(std::string_view name, std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return OkStatus();
  return InvalidArgument("{} is not valid UTF-8: see its byte {}", name, valid);
}

// Protocol buffer strings must be UTF-8, and protobuf's own error does not name the invalid one.
Status CheckTexts(const GenerateCall& call) {
  BATON_RETURN_IF_ERROR(CheckUtf8("the prompt", call.text));
  for (const auto& turn : call.turns) {
    BATON_RETURN_IF_ERROR(CheckUtf8(fmt::format("the {} message", turn.role), turn.content));
  }
  for (const auto& stop : call.stop) BATON_RETURN_IF_ERROR(CheckUtf8("a stop string", stop));
  return OkStatus();
}

v1::GenerateRequest ToProto(const GenerateCall& call) {
  v1::GenerateRequest request;
  request.set_model(call.model);
  if (call.turns.empty()) {
    request.set_text(call.text);
  } else {
    for (const auto& turn : call.turns) {
      auto& message = *request.mutable_chat()->add_messages();
      message.set_role(turn.role);
      message.set_content(turn.content);
    }
  }
  auto& sampling = *request.mutable_sampling();
  SetSamplingFields(call, sampling);
  if (call.top_k) sampling.set_top_k(*call.top_k);
  if (call.seed) sampling.set_seed(*call.seed);
  if (call.max_tokens) request.set_max_tokens(*call.max_tokens);
  for (const auto& stop : call.stop) request.add_stop(stop);
  request.set_ignore_eos(call.ignore_eos);
  if (!call.regex.empty()) request.mutable_grammar()->set_regex(call.regex);
  request.set_timeout_ms(call.timeout_ms);
  request.set_skip_special_tokens(true);
  request.set_echo_tokens(true);
  return request;
}

// Adds one message of the stream to the account. Errors: the error in the message.
Status Take(const v1::GenerateResponse& response, GenerateAccount& account) {
  account.text += response.text();
  account.tokens.insert(
      account.tokens.end(), response.token_ids().begin(), response.token_ids().end());
  if (response.has_usage()) {
    account.prompt_tokens = response.usage().prompt_tokens();
    account.cached_tokens = response.usage().cached_tokens();
    account.generated_tokens = response.usage().generated_tokens();
  }
  if (response.has_timings()) {
    const v1::Timings& times = response.timings();
    account.queue_ms = times.queue_ms();
    account.prefill_ms = times.prefill_ms();
    account.transfer_ms = times.transfer_ms();
    account.ttft_ms = times.ttft_ms();
    account.tpot_ms = times.tpot_ms();
    account.transfer_bytes = times.transfer_bytes();
    account.transfer_gigabytes_per_second = times.transfer_gigabytes_per_second();
    account.transport = times.transport();
    account.prefill_worker = times.prefill_worker();
    account.decode_worker = times.decode_worker();
    account.attempts = times.attempts();
  }
  switch (response.finish()) {
    case v1::FINISH_REASON_STOP:
      account.finish = "stop";
      break;
    case v1::FINISH_REASON_LENGTH:
      account.finish = "length";
      break;
    case v1::FINISH_REASON_ERROR:
      return Status(static_cast<StatusCode>(response.error().code()), response.error().message());
    default:
      break;
  }
  return OkStatus();
}

// A router that is stopped for some seconds (a live migration, a debugger) answers no pings but
// continues afterwards. The request's own timeout bounds the wait, so pings give up only after a
// long silence.
ConnectionLimits PatientLimits() {
  ConnectionLimits limits;
  limits.ping_every = std::chrono::seconds(10);
  limits.ping_timeout = std::chrono::seconds(60);
  return limits;
}

}  // namespace

struct GenerationClient::Impl {
  explicit Impl(const RouterEndpoint& endpoint_in)
      : endpoint(endpoint_in),
        stub(v1::Generation::NewStub(ChannelTo(endpoint_in, PatientLimits()))) {}
  const RouterEndpoint endpoint;
  std::unique_ptr<v1::Generation::Stub> stub;
};

GenerationClient::GenerationClient(const RouterEndpoint& endpoint)
    : impl_(std::make_unique<Impl>(endpoint)) {}
GenerationClient::~GenerationClient() = default;

StatusOr<GenerateAccount> GenerationClient::Generate(
    const GenerateCall& call,
    const std::function<void(std::string_view)>& on_text,
    const std::stop_token& stop) {
  BATON_RETURN_IF_ERROR(CheckTexts(call));
  grpc::ClientContext context;
  AddKey(impl_->endpoint, context);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  const auto reader = impl_->stub->Generate(&context, ToProto(call));
  GenerateAccount account;
  Status failure;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (!response.text().empty()) on_text(response.text());
    if (const Status taken = Take(response, account); !taken.ok()) failure = taken;
  }
  const Status ended = FromGrpc(reader->Finish());
  if (!failure.ok()) return failure;
  if (!ended.ok()) return ExplainUnreachable(ended, impl_->endpoint);
  return account;
}

StatusOr<std::string> GenerationClient::ModelName() {
  grpc::ClientContext context;
  AddKey(impl_->endpoint, context);
  context.set_deadline(std::chrono::system_clock::now() + kShortCall);
  v1::ListModelsResponse response;
  const Status listed = FromGrpc(impl_->stub->ListModels(&context, {}, &response));
  if (!listed.ok()) return ExplainUnreachable(listed, impl_->endpoint);
  if (response.models().empty()) {
    return MakeStatus(
        StatusCode::kUnavailable, "the router at {} serves no model yet", impl_->endpoint.address);
  }
  return response.models(0).name();
}

}  // namespace baton
