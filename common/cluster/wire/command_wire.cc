#include "common/cluster/wire/command_wire.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "common/cluster/wire/request_fields_wire.h"

namespace baton {
namespace {

namespace wire = worker::v1;

constexpr int kMaxLogitBias = 1024;
constexpr int kMaxStopTokens = 1024;
constexpr size_t kMaxTokens = size_t{1} << 22;
constexpr double kMaxTimeoutMs = 4e9;
constexpr double kMaxAgeMs = 4e9;

static_assert(std::endian::native == std::endian::little && sizeof(TokenId) == 4,
              "token ids are copied as they lie in memory");

// ---- kinds

wire::Dispatch::Kind KindToProto(RequestKind kind) {
  switch (kind) {
    case RequestKind::kServe:
      return wire::Dispatch::SERVE;
    case RequestKind::kPrefill:
      return wire::Dispatch::PREFILL;
    case RequestKind::kDecode:
      return wire::Dispatch::DECODE;
  }
  return wire::Dispatch::KIND_UNSPECIFIED;
}

StatusOr<RequestKind> KindFromProto(wire::Dispatch::Kind kind) {
  switch (kind) {
    case wire::Dispatch::SERVE:
      return RequestKind::kServe;
    case wire::Dispatch::PREFILL:
      return RequestKind::kPrefill;
    case wire::Dispatch::DECODE:
      return RequestKind::kDecode;
    default:
      return InvalidArgument("kind is {}; it must be SERVE, PREFILL or DECODE",
                             static_cast<int>(kind));
  }
}

// ---- peers

void SetPeer(const Peer& in, wire::Peer& out) {
  out.set_worker_id(in.id.value());
  out.set_boot_id(in.boot.value());
  out.set_kv_address(in.kv_address);
}

StatusOr<Peer> PeerFromProto(const wire::Peer& in, bool address_wanted) {
  if (in.worker_id().empty()) return InvalidArgument("peer.worker_id is empty");
  if (address_wanted && in.kv_address().empty()) {
    return InvalidArgument("peer.kv_address of '{}' is empty; it must be host:port",
                           in.worker_id());
  }
  return Peer{WorkerId(in.worker_id()), BootId(in.boot_id()), in.kv_address()};
}

// ---- sampling

void SetSampling(const SamplingParams& in, v1::Sampling& out) {
  SetSamplingFields(in, out);
  out.set_top_k(in.top_k);
  out.set_seed(in.seed);
  for (const auto& [token, bias] : in.logit_bias) (*out.mutable_logit_bias())[token] = bias;
}

StatusOr<SamplingParams> SamplingFromProto(const v1::Sampling& in) {
  if (in.logit_bias_size() > kMaxLogitBias) {
    return InvalidArgument("sampling.logit_bias has {} entries; at most {} are allowed",
                           in.logit_bias_size(),
                           kMaxLogitBias);
  }
  SamplingParams out;
  ReadSamplingFields(in, out);
  out.top_k = in.top_k();
  out.seed = in.seed();
  out.logit_bias.assign(in.logit_bias().begin(), in.logit_bias().end());
  std::ranges::sort(out.logit_bias);
  return out;
}

// ---- dispatches and redirects

void SetDispatch(const DispatchCommand& in, Time now, wire::Dispatch& out) {
  const Request& request = in.request;
  out.set_request_id(request.id.value());
  out.set_epoch(request.epoch.value());
  out.set_kind(KindToProto(request.kind));
  out.mutable_tokens()->assign(reinterpret_cast<const char*>(request.tokens.data()),
                               request.tokens.size() * sizeof(TokenId));
  out.set_prompt_length(request.prompt_length);
  out.set_samples(request.samples);
  out.set_first_sample(request.first_sample);
  SetSampling(request.sampling, *out.mutable_sampling());
  out.set_top_logprobs(request.sampling.top_logprobs);
  if (request.prompt_logprobs >= 0) out.set_prompt_logprobs(request.prompt_logprobs);
  out.set_pooling(static_cast<wire::Dispatch::Pooling>(request.pooling));
  out.mutable_labels()->Add(request.labels.begin(), request.labels.end());
  out.set_max_tokens(request.max_tokens);
  out.set_min_tokens(request.min_tokens);
  out.mutable_stop_tokens()->Add(request.stop_tokens.begin(), request.stop_tokens.end());
  SetPassedFields(request, out);
  if (request.deadline != kNever) {
    const double ms = std::clamp(ToMillis(request.deadline - now), 1.0, kMaxTimeoutMs);
    out.set_timeout_ms(static_cast<uint32_t>(ms));
  }
  out.set_age_ms(static_cast<uint32_t>(
      std::clamp(ToMillis(now - request.arrival + request.age), 0.0, kMaxAgeMs)));
  out.set_client_tag(request.client_tag);
  if (request.kind == RequestKind::kServe) return;
  out.set_peer_first(request.peer_first);
  out.set_pinned(request.pinned);
  out.set_session_id(in.session.value());
  SetPeer(in.peer, *out.mutable_peer());
}

Status CheckSession(uint64_t session) {
  if (session == 0) return InvalidArgument("session_id is 0; a hand-off needs one");
  return OkStatus();
}

StatusOr<std::vector<TokenId>> TokensFromProto(const std::string& bytes) {
  if (bytes.size() % sizeof(TokenId) != 0 || bytes.size() / sizeof(TokenId) > kMaxTokens) {
    return InvalidArgument(
        "tokens has {} bytes; it must have 4 a token, at most {} tokens", bytes.size(), kMaxTokens);
  }
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

StatusOr<DispatchCommand> DispatchFromProto(const wire::Dispatch& in, Time now) {
  DispatchCommand out;
  Request& request = out.request;
  BATON_ASSIGN_OR_RETURN(request.kind, KindFromProto(in.kind()));
  if (request.kind != RequestKind::kServe) {
    BATON_RETURN_IF_ERROR(CheckSession(in.session_id()));
    out.session = SessionId(in.session_id());
    const bool dials = request.kind == RequestKind::kPrefill;
    BATON_ASSIGN_OR_RETURN(out.peer, PeerFromProto(in.peer(), dials));
    request.peer_first = in.peer_first();
    request.pinned = in.pinned();
  }
  if (in.stop_tokens_size() > kMaxStopTokens) {
    return InvalidArgument("stop_tokens has {} entries; at most {} are allowed",
                           in.stop_tokens_size(),
                           kMaxStopTokens);
  }
  BATON_RETURN_IF_ERROR(ReadPassedFields(in, request));
  request.id = RequestId(in.request_id());
  request.epoch = Epoch(in.epoch());
  BATON_ASSIGN_OR_RETURN(request.tokens, TokensFromProto(in.tokens()));
  request.prompt_length = in.prompt_length();
  request.samples = in.samples();
  request.first_sample = in.first_sample();
  BATON_ASSIGN_OR_RETURN(request.sampling, SamplingFromProto(in.sampling()));
  request.sampling.top_logprobs = in.top_logprobs();
  if (in.has_prompt_logprobs()) request.prompt_logprobs = in.prompt_logprobs();
  if (!wire::Dispatch::Pooling_IsValid(in.pooling())) {
    return InvalidArgument("a dispatch has the unknown pooling {}", static_cast<int>(in.pooling()));
  }
  request.pooling = static_cast<Pooling>(in.pooling());
  request.labels.assign(in.labels().begin(), in.labels().end());
  request.max_tokens = in.max_tokens();
  request.min_tokens = in.min_tokens();
  request.stop_tokens.assign(in.stop_tokens().begin(), in.stop_tokens().end());
  request.arrival = now;
  request.age = std::chrono::milliseconds(in.age_ms());
  if (in.timeout_ms() > 0) request.deadline = now + std::chrono::milliseconds(in.timeout_ms());
  request.client_tag = in.client_tag();
  return out;
}

void SetRedirect(const RedirectCommand& in, wire::Redirect& out) {
  out.set_request_id(in.id.value());
  out.set_epoch(in.epoch.value());
  out.set_session_id(in.session.value());
  out.set_decode_epoch(in.decode_epoch.value());
  SetPeer(in.peer, *out.mutable_peer());
  out.set_peer_first(in.peer_first);
}

StatusOr<RedirectCommand> RedirectFromProto(const wire::Redirect& in) {
  BATON_RETURN_IF_ERROR(CheckSession(in.session_id()));
  BATON_ASSIGN_OR_RETURN(Peer peer, PeerFromProto(in.peer(), true));
  return RedirectCommand{RequestId(in.request_id()),
                         Epoch(in.epoch()),
                         SessionId(in.session_id()),
                         Epoch(in.decode_epoch()),
                         std::move(peer),
                         in.peer_first()};
}

// ---- one command to its place in the message

struct CommandEncoder {
  Time now;
  wire::ToWorker& out;

  void operator()(const DispatchCommand& in) const { SetDispatch(in, now, *out.add_dispatches()); }
  void operator()(const CancelCommand& in) const {
    wire::Cancel& cancel = *out.add_cancels();
    cancel.set_request_id(in.id.value());
    cancel.set_epoch(in.epoch.value());
    cancel.set_complete(in.complete);
  }
  void operator()(const StopSampleCommand& in) const {
    wire::Cancel& cancel = *out.add_cancels();
    cancel.set_request_id(in.id.value());
    cancel.set_epoch(in.epoch.value());
    cancel.set_sample(in.sample);
  }
  void operator()(const RedirectCommand& in) const { SetRedirect(in, *out.add_redirects()); }
  void operator()(const SnapshotCommand& in) const {
    out.set_send_snapshot(true);
    if (in.clear) out.set_clear_cache(true);
  }
  void operator()(const DrainWorkerCommand& in) const { out.mutable_drain()->set_keep(in.keep); }
  void operator()(const ConnectCommand& in) const { SetPeer(in.peer, *out.add_peers()); }
};

WorkerCommand CancelFromProto(const wire::Cancel& in) {
  const RequestId id(in.request_id());
  const Epoch epoch(in.epoch());
  if (in.has_sample()) return StopSampleCommand{id, epoch, in.sample()};
  return CancelCommand{id, epoch, in.complete()};
}

}  // namespace

wire::ToWorker CommandsToProto(std::span<const WorkerCommand> commands, Time now) {
  wire::ToWorker out;
  for (const WorkerCommand& command : commands) std::visit(CommandEncoder{now, out}, command);
  return out;
}

DecodedCommands CommandsFromProto(const wire::ToWorker& message, Time now) {
  DecodedCommands out;
  const auto take = [&out](const auto& in, auto command, std::string_view what) {
    if (command.ok()) {
      out.commands.emplace_back(*std::move(command));
      return;
    }
    const Status why = Annotate(command.status(), what);
    out.refused.push_back({RequestId(in.request_id()), Epoch(in.epoch()), why, IsRetryable(why)});
  };
  for (const wire::Dispatch& in : message.dispatches()) {
    take(in, DispatchFromProto(in, now), "dispatch");
  }
  for (const wire::Redirect& in : message.redirects()) {
    take(in, RedirectFromProto(in), "redirect");
  }
  for (const wire::Cancel& in : message.cancels()) out.commands.push_back(CancelFromProto(in));
  for (const wire::Peer& in : message.peers()) {
    // A peer without a name or an address is left out: the first request that needs it names it.
    StatusOr<Peer> peer = PeerFromProto(in, true);
    if (peer.ok()) out.commands.emplace_back(ConnectCommand{*std::move(peer)});
  }
  if (message.send_snapshot()) {
    out.commands.emplace_back(SnapshotCommand{message.clear_cache()});
  }
  if (message.has_drain()) out.commands.emplace_back(DrainWorkerCommand{message.drain().keep()});
  return out;
}

}  // namespace baton
