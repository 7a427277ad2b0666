#include "router/worker_messages_link.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

namespace baton::router {
namespace {

namespace wire = worker::v1;

constexpr size_t kMaxName = 256;
constexpr size_t kMaxText = 4096;
constexpr size_t kHashBytes = 16;

static_assert(std::endian::native == std::endian::little,
              "token ids are copied without byte swaps");

Status CheckPositive(const char* field, int64_t value) {
  if (value > 0) return OkStatus();
  return InvalidArgument("join.{} is {}; it must be at least 1", field, value);
}

StatusOr<CacheEvent> EventFromProto(const wire::CacheEvent& in) {
  CacheEvent out;
  out.sequence = in.sequence();
  switch (in.kind()) {
    case wire::CacheEvent::STORED:
      out.kind = CacheEvent::Kind::kStored;
      break;
    case wire::CacheEvent::REMOVED:
      out.kind = CacheEvent::Kind::kRemoved;
      break;
    case wire::CacheEvent::CLEARED:
      out.kind = CacheEvent::Kind::kCleared;
      break;
    default:
      return InvalidArgument(
          "cache event {} has the unknown kind {}", in.sequence(), static_cast<int>(in.kind()));
  }
  const std::string& bytes = in.hashes();
  if (bytes.size() % kHashBytes != 0) {
    return InvalidArgument(
        "cache event {} has {} bytes of hashes; the number must be a multiple of {}",
        in.sequence(),
        bytes.size(),
        kHashBytes);
  }
  out.blocks.resize(bytes.size() / kHashBytes);
  for (size_t i = 0; i < out.blocks.size(); ++i) {
    std::memcpy(&out.blocks[i].high, bytes.data() + i * kHashBytes, 8);
    std::memcpy(&out.blocks[i].low, bytes.data() + i * kHashBytes + 8, 8);
  }
  return out;
}

StatusOr<TokenOutput> TokenFromProto(const wire::Token& in) {
  if (in.finish() < 0 || in.finish() > static_cast<int>(FinishReason::kHandedOff)) {
    return InvalidArgument(
        "a token of request {} has the unknown finish reason {}", in.request_id(), in.finish());
  }
  TokenOutput out;
  out.id = RequestId(in.request_id());
  out.epoch = Epoch(in.epoch());
  out.sample = in.sample();
  out.index = in.index();
  out.token.token = in.token();
  out.token.logprob = in.logprob();
  out.token.top.reserve(in.top_size());
  for (const wire::TopLogprob& top : in.top()) {
    out.token.top.push_back({top.token(), top.logprob()});
  }
  out.finish = static_cast<FinishReason>(in.finish());
  return out;
}

// The status of a failure. A code that is not a StatusCode, or is OK, becomes kUnknown.
Status StatusFromProto(int32_t code, const std::string& message) {
  const bool known = code > 0 && code <= static_cast<int32_t>(StatusCode::kUnauthenticated);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown, message);
}

StatusOr<HandoffReport> HandoffFromProto(const wire::Handoff& in) {
  HandoffReport out;
  out.id = RequestId(in.request_id());
  out.epoch = Epoch(in.epoch());
  switch (in.outcome()) {
    case wire::Handoff::COMMITTED:
      out.outcome = HandoffReport::Outcome::kCommitted;
      break;
    case wire::Handoff::REFUSED:
      out.outcome = HandoffReport::Outcome::kRefused;
      break;
    case wire::Handoff::FAILED:
      out.outcome = HandoffReport::Outcome::kFailed;
      break;
    case wire::Handoff::NOT_NEEDED:
      out.outcome = HandoffReport::Outcome::kNotNeeded;
      break;
    default:
      return InvalidArgument("a hand-off of request {} has the unknown outcome {}",
                             in.request_id(),
                             static_cast<int>(in.outcome()));
  }
  out.status = StatusFromProto(in.code(), in.message());
  out.bytes = in.bytes();
  out.transfer_ms = in.transfer_ms();
  out.gigabytes_per_second = in.gigabytes_per_second();
  out.transport = in.transport();
  out.reused_blocks = in.reused_blocks();
  return out;
}

WorkerLoad LoadFromProto(const wire::Heartbeat& in) {
  WorkerLoad out;
  out.stats.running = std::max(0, in.running());
  out.stats.waiting = std::max(0, in.waiting());
  out.stats.awaiting_kv = std::max(0, in.awaiting_kv());
  out.stats.queued_tokens = std::max<int64_t>(0, in.queued_tokens());
  out.stats.blocks_total = in.blocks_total();
  out.stats.blocks_free = in.blocks_free();
  out.stats.blocks_cached = in.blocks_cached();
  out.stats.blocks_leaked = in.blocks_leaked();
  out.stats.prompt_tokens = in.prompt_tokens();
  out.stats.cached_tokens = in.cached_tokens();
  out.stats.output_tokens = in.output_tokens();
  out.stats.preemptions = in.preemptions();
  // std::max(0.0, NaN) is 0, so a predicted cost is never NaN.
  out.stats.step_ms_base = std::max(0.0, in.step_ms_base());
  out.stats.step_ms_per_token = std::max(0.0, in.step_ms_per_token());
  out.stats.step_ms_per_token_context = std::max(0.0, in.step_ms_per_token_context());
  out.stats.step_ms_per_prompt_token = std::max(0.0, in.step_ms_per_prompt_token());
  out.stats.step_ms_per_prompt_token_context = std::max(0.0, in.step_ms_per_prompt_token_context());
  out.digest = {in.digest_high(), in.digest_low()};
  out.digest_sequence = in.digest_sequence();
  for (const wire::PeerTransport& peer : in.peers()) {
    out.peers.push_back({peer.peer(),
                         peer.transport(),
                         peer.bytes(),
                         peer.transfers(),
                         peer.gigabytes_per_second()});
  }
  out.blocks_quarantined = std::max(0, in.blocks_quarantined());
  out.draining = in.draining();
  return out;
}

void SetPeer(const Peer& in, wire::Peer& out) {
  out.set_worker_id(in.id.value());
  out.set_boot_id(in.boot.value());
  out.set_kv_address(in.kv_address);
}

void SetSampling(const SamplingParams& in, wire::SamplingParams& out) {
  out.set_temperature(in.temperature);
  out.set_top_k(in.top_k);
  out.set_top_p(in.top_p);
  out.set_min_p(in.min_p);
  out.set_repetition_penalty(in.repetition_penalty);
  out.set_presence_penalty(in.presence_penalty);
  out.set_frequency_penalty(in.frequency_penalty);
  out.set_seed(in.seed);
  out.set_top_logprobs(in.top_logprobs);
  for (const auto& [token, bias] : in.logit_bias) (*out.mutable_logit_bias())[token] = bias;
}

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

void SetDispatch(const DispatchCommand& in, wire::Dispatch& out) {
  const RequestSpec& spec = *in.spec;
  out.set_request_id(spec.id.value());
  out.set_epoch(in.epoch.value());
  out.set_kind(KindToProto(in.kind));
  std::string& tokens = *out.mutable_tokens();
  tokens.reserve((spec.prompt.size() + in.resumed.size()) * sizeof(TokenId));
  for (const std::vector<TokenId>* part : {&spec.prompt, &in.resumed}) {
    tokens.append(reinterpret_cast<const char*>(part->data()), part->size() * sizeof(TokenId));
  }
  out.set_prompt_length(static_cast<int32_t>(spec.prompt.size()));
  out.set_samples(in.samples);
  out.set_first_sample(in.first_sample);
  SetSampling(spec.sampling, *out.mutable_sampling());
  out.set_max_tokens(spec.max_tokens);
  out.set_min_tokens(spec.min_tokens);
  for (const TokenId token : spec.stop_tokens) out.add_stop_tokens(token);
  out.set_priority(spec.priority);
  if (in.time_left > Duration::zero()) {
    const double ms = std::clamp(ToMillis(in.time_left), 1.0, 4e9);
    out.set_timeout_ms(static_cast<uint32_t>(ms));
  }
  out.set_cache_salt(spec.cache_salt);
  out.set_session_id(in.session.value());
  if (in.kind != RequestKind::kServe) SetPeer(in.peer, *out.mutable_peer());
}

}  // namespace

StatusOr<WorkerInfo> WorkerInfoFromProto(const wire::ToRouter& message) {
  if (!message.has_join()) {
    return InvalidArgument("the first message of a worker must carry `join`");
  }
  const wire::Join& in = message.join();
  if (in.worker_id().empty() || in.worker_id().size() > kMaxName) {
    return InvalidArgument(
        "join.worker_id has {} bytes; it must have 1 to {}", in.worker_id().size(), kMaxName);
  }
  if (in.version() != static_cast<uint32_t>(wire::PROTOCOL_VERSION)) {
    return MakeStatus(StatusCode::kFailedPrecondition,
                      "worker {} speaks protocol version {}, this router version {}",
                      in.worker_id(),
                      in.version(),
                      static_cast<int>(wire::PROTOCOL_VERSION));
  }
  for (const auto* text :
       {&in.model(), &in.kv_layout(), &in.kv_address(), &in.admin_address(), &in.device()}) {
    if (text->size() <= kMaxText) continue;
    return InvalidArgument("join of worker {} has a string of {} bytes; at most {} are allowed",
                           in.worker_id(),
                           text->size(),
                           kMaxText);
  }
  if (!in.can_prefill() && !in.can_decode()) {
    return InvalidArgument("worker {} can neither prefill nor decode", in.worker_id());
  }
  BATON_RETURN_IF_ERROR(CheckPositive("block_tokens", in.block_tokens()));
  BATON_RETURN_IF_ERROR(CheckPositive("blocks", in.blocks()));
  BATON_RETURN_IF_ERROR(CheckPositive("context_length", in.context_length()));
  BATON_RETURN_IF_ERROR(CheckPositive("vocabulary", in.vocabulary()));
  WorkerInfo out;
  out.id = WorkerId(in.worker_id());
  out.boot = BootId(in.boot_id());
  out.can_prefill = in.can_prefill();
  out.can_decode = in.can_decode();
  out.model = in.model();
  out.fingerprint = {in.fingerprint_high(), in.fingerprint_low()};
  out.shape = {in.shape_high(), in.shape_low()};
  out.tokenizer = {in.tokenizer_high(), in.tokenizer_low()};
  out.secret_probe = {in.secret_probe_high(), in.secret_probe_low()};
  out.kv_layout = in.kv_layout();
  out.kv_address = in.kv_address();
  out.admin_address = in.admin_address();
  out.device = in.device();
  out.block_tokens = in.block_tokens();
  out.blocks = in.blocks();
  out.max_sequences = std::max(1, in.max_sequences());
  out.context_length = in.context_length();
  out.vocabulary = in.vocabulary();
  out.max_step_tokens = std::max(1, in.max_step_tokens());
  out.itl_target_ms = std::max(0.0, in.itl_target_ms());
  return out;
}

StatusOr<WorkerReport> ReportFromProto(const wire::ToRouter& message) {
  if (message.has_join()) return InvalidArgument("`join` is allowed only in the first message");
  WorkerReport out;
  if (message.has_heartbeat()) out.load = LoadFromProto(message.heartbeat());
  out.drain = message.has_drain();
  out.tokens.reserve(message.tokens_size());
  for (const wire::Token& token : message.tokens()) {
    BATON_ASSIGN_OR_RETURN(TokenOutput one, TokenFromProto(token));
    out.tokens.push_back(std::move(one));
  }
  for (const wire::Handoff& handoff : message.handoffs()) {
    BATON_ASSIGN_OR_RETURN(HandoffReport one, HandoffFromProto(handoff));
    out.handoffs.push_back(std::move(one));
  }
  for (const wire::Finished& in : message.finished()) {
    out.finished.push_back({RequestId(in.request_id()),
                            Epoch(in.epoch()),
                            in.queue_ms(),
                            in.prefill_ms(),
                            in.cached_tokens()});
  }
  for (const wire::Failed& in : message.failed()) {
    out.failed.push_back({RequestId(in.request_id()),
                          Epoch(in.epoch()),
                          StatusFromProto(in.code(), in.message()),
                          in.retryable()});
  }
  for (const wire::CacheEvent& event : message.cache_events()) {
    BATON_ASSIGN_OR_RETURN(CacheEvent one, EventFromProto(event));
    out.cache_events.push_back(std::move(one));
  }
  return out;
}

wire::ToWorker CommandsToProto(std::span<const WorkerCommand> commands) {
  wire::ToWorker out;
  for (const WorkerCommand& command : commands) {
    if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
      SetDispatch(*dispatch, *out.add_dispatches());
    } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
      wire::Cancel& to = *out.add_cancels();
      to.set_request_id(cancel->id.value());
      to.set_epoch(cancel->epoch.value());
      to.set_complete(cancel->complete);
    } else if (const auto* stop = std::get_if<StopSampleCommand>(&command)) {
      wire::Cancel& to = *out.add_cancels();
      to.set_request_id(stop->id.value());
      to.set_epoch(stop->epoch.value());
      to.set_sample(stop->sample);
    } else if (const auto* redirect = std::get_if<RedirectCommand>(&command)) {
      wire::Redirect& to = *out.add_redirects();
      to.set_request_id(redirect->id.value());
      to.set_epoch(redirect->epoch.value());
      to.set_session_id(redirect->session.value());
      to.set_decode_epoch(redirect->decode_epoch.value());
      SetPeer(redirect->peer, *to.mutable_peer());
    } else if (std::holds_alternative<SnapshotCommand>(command)) {
      out.set_send_snapshot(true);
    } else if (const auto* meet = std::get_if<MeetCommand>(&command)) {
      SetPeer(meet->peer, *out.add_peers());
    } else if (const auto* drain = std::get_if<DrainWorkerCommand>(&command)) {
      out.mutable_drain()->set_keep(drain->keep);
    }
  }
  return out;
}

}  // namespace baton::router
