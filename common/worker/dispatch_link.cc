#include "common/worker/dispatch_link.h"

#include <bit>
#include <cstring>
#include <utility>

namespace baton {
namespace {

namespace pb = worker::v1;

constexpr int kMaxLogitBias = 1024;
constexpr int kMaxStopTokens = 1024;
constexpr size_t kMaxSaltBytes = 1024;
constexpr size_t kMaxTokens = size_t{1} << 22;

StatusOr<RequestKind> KindOf(const pb::Dispatch& dispatch, const WorkerIdentity& self) {
  switch (dispatch.kind()) {
    case pb::Dispatch::SERVE:
      return RequestKind::kServe;
    case pb::Dispatch::PREFILL:
      if (!self.can_prefill) return InvalidArgument("kind is PREFILL; this worker cannot prefill");
      return RequestKind::kPrefill;
    case pb::Dispatch::DECODE:
      if (!self.can_decode) return InvalidArgument("kind is DECODE; this worker cannot decode");
      return RequestKind::kDecode;
    default:
      return InvalidArgument("kind is {}; it must be SERVE, PREFILL or DECODE",
                             static_cast<int>(dispatch.kind()));
  }
}

StatusOr<std::vector<TokenId>> TokensOf(const std::string& bytes) {
  static_assert(std::endian::native == std::endian::little && sizeof(TokenId) == 4);
  if (bytes.size() % sizeof(TokenId) != 0 || bytes.size() / sizeof(TokenId) > kMaxTokens) {
    return InvalidArgument(
        "tokens has {} bytes; it must have 4 bytes per token and at most {} tokens",
        bytes.size(),
        kMaxTokens);
  }
  std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

StatusOr<SamplingParams> SamplingOf(const pb::SamplingParams& from) {
  if (from.logit_bias_size() > kMaxLogitBias) {
    return InvalidArgument("sampling.logit_bias has {} entries; at most {} are allowed",
                           from.logit_bias_size(),
                           kMaxLogitBias);
  }
  SamplingParams to;
  to.temperature = from.temperature();
  to.top_k = from.top_k();
  to.top_p = from.top_p();
  to.min_p = from.min_p();
  to.repetition_penalty = from.repetition_penalty();
  to.presence_penalty = from.presence_penalty();
  to.frequency_penalty = from.frequency_penalty();
  to.seed = from.seed();
  to.top_logprobs = from.top_logprobs();
  to.logit_bias.assign(from.logit_bias().begin(), from.logit_bias().end());
  return to;
}

Status CheckSession(uint64_t session) {
  if (session == 0) return InvalidArgument("session_id is 0; it must not be 0 for a hand-off");
  return OkStatus();
}

KvPeer PeerOf(const pb::Peer& peer) {
  return {WorkerId(peer.worker_id()), BootId(peer.boot_id()), peer.kv_address()};
}

Status CheckPeer(const pb::Peer& peer, bool address_wanted) {
  if (peer.worker_id().empty()) return InvalidArgument("peer.worker_id is empty");
  if (address_wanted && peer.kv_address().empty()) {
    return InvalidArgument("peer.kv_address of '{}' is empty; it must be host:port",
                           peer.worker_id());
  }
  return OkStatus();
}

}  // namespace

StatusOr<DispatchOrder> FromProto(const pb::Dispatch& dispatch,
                                  const WorkerIdentity& self,
                                  Time now) {
  DispatchOrder order;
  Request& request = order.request;
  BATON_ASSIGN_OR_RETURN(request.kind, KindOf(dispatch, self));
  if (request.kind != RequestKind::kServe) {
    BATON_RETURN_IF_ERROR(CheckSession(dispatch.session_id()));
    BATON_RETURN_IF_ERROR(CheckPeer(dispatch.peer(), request.kind == RequestKind::kPrefill));
  }
  if (dispatch.stop_tokens_size() > kMaxStopTokens) {
    return InvalidArgument("stop_tokens has {} entries; at most {} are allowed",
                           dispatch.stop_tokens_size(),
                           kMaxStopTokens);
  }
  if (dispatch.cache_salt().size() > kMaxSaltBytes) {
    return InvalidArgument("cache_salt has {} bytes; at most {} are allowed",
                           dispatch.cache_salt().size(),
                           kMaxSaltBytes);
  }
  request.id = RequestId(dispatch.request_id());
  request.epoch = Epoch(dispatch.epoch());
  BATON_ASSIGN_OR_RETURN(request.tokens, TokensOf(dispatch.tokens()));
  request.prompt_length = dispatch.prompt_length();
  request.samples = dispatch.samples();
  request.first_sample = dispatch.first_sample();
  BATON_ASSIGN_OR_RETURN(request.sampling, SamplingOf(dispatch.sampling()));
  request.max_tokens = dispatch.max_tokens();
  request.min_tokens = dispatch.min_tokens();
  request.stop_tokens.assign(dispatch.stop_tokens().begin(), dispatch.stop_tokens().end());
  request.priority = dispatch.priority();
  request.arrival = now;
  if (dispatch.timeout_ms() > 0) {
    request.deadline = now + std::chrono::milliseconds(dispatch.timeout_ms());
  }
  request.cache_salt = dispatch.cache_salt();
  order.session = SessionId(dispatch.session_id());
  order.peer = PeerOf(dispatch.peer());
  return order;
}

StatusOr<KvPeer> FromProto(const pb::Peer& peer) {
  BATON_RETURN_IF_ERROR(CheckPeer(peer, true));
  return PeerOf(peer);
}

StatusOr<RedirectOrder> FromProto(const pb::Redirect& redirect) {
  BATON_RETURN_IF_ERROR(CheckSession(redirect.session_id()));
  BATON_RETURN_IF_ERROR(CheckPeer(redirect.peer(), true));
  return RedirectOrder{RequestId(redirect.request_id()),
                       Epoch(redirect.epoch()),
                       SessionId(redirect.session_id()),
                       Epoch(redirect.decode_epoch()),
                       PeerOf(redirect.peer())};
}

pb::Join ToProto(const WorkerIdentity& identity) {
  pb::Join join;
  join.set_version(pb::PROTOCOL_VERSION);
  join.set_worker_id(identity.id.value());
  join.set_boot_id(identity.boot.value());
  join.set_can_prefill(identity.can_prefill);
  join.set_can_decode(identity.can_decode);
  join.set_model(identity.model);
  join.set_fingerprint_high(identity.fingerprint.high);
  join.set_fingerprint_low(identity.fingerprint.low);
  join.set_kv_layout(identity.kv_layout);
  join.set_kv_address(identity.kv_address);
  join.set_block_tokens(identity.block_tokens);
  join.set_blocks(identity.blocks);
  join.set_max_sequences(identity.max_sequences);
  join.set_context_length(identity.context_length);
  join.set_vocabulary(identity.vocabulary);
  join.set_max_step_tokens(identity.max_step_tokens);
  join.set_admin_address(identity.admin_address);
  join.set_device(identity.device);
  join.set_itl_target_ms(ToMillis(identity.itl_target));
  join.set_shape_high(identity.shape.high);
  join.set_shape_low(identity.shape.low);
  join.set_tokenizer_high(identity.tokenizer.high);
  join.set_tokenizer_low(identity.tokenizer.low);
  join.set_secret_probe_high(identity.secret_probe.high);
  join.set_secret_probe_low(identity.secret_probe.low);
  return join;
}

pb::Heartbeat ToProto(const LoadReport& load) {
  pb::Heartbeat heartbeat;
  heartbeat.set_sequence(load.sequence);
  heartbeat.set_running(load.engine.running);
  heartbeat.set_waiting(load.engine.waiting);
  heartbeat.set_awaiting_kv(load.engine.awaiting_kv);
  heartbeat.set_queued_tokens(load.engine.queued_tokens);
  heartbeat.set_blocks_free(load.engine.blocks_free);
  heartbeat.set_blocks_total(load.engine.blocks_total);
  heartbeat.set_blocks_cached(load.engine.blocks_cached);
  heartbeat.set_blocks_leaked(load.engine.blocks_leaked);
  heartbeat.set_step_ms_base(load.engine.step_ms_base);
  heartbeat.set_step_ms_per_token(load.engine.step_ms_per_token);
  heartbeat.set_step_ms_per_token_context(load.engine.step_ms_per_token_context);
  heartbeat.set_step_ms_per_prompt_token(load.engine.step_ms_per_prompt_token);
  heartbeat.set_step_ms_per_prompt_token_context(load.engine.step_ms_per_prompt_token_context);
  heartbeat.set_digest_high(load.digest.high);
  heartbeat.set_digest_low(load.digest.low);
  heartbeat.set_digest_sequence(load.digest_sequence);
  for (const auto& [peer, traffic] : load.peers) {
    pb::PeerTransport* entry = heartbeat.add_peers();
    entry->set_peer(peer.value());
    entry->set_transport(traffic.transport);
    entry->set_bytes(traffic.bytes);
    entry->set_transfers(traffic.transfers);
    entry->set_gigabytes_per_second(traffic.bytes_per_second / 1e9);
  }
  heartbeat.set_prompt_tokens(load.engine.prompt_tokens);
  heartbeat.set_cached_tokens(load.engine.cached_tokens);
  heartbeat.set_output_tokens(load.engine.output_tokens);
  heartbeat.set_preemptions(load.engine.preemptions);
  heartbeat.set_draining(load.draining);
  heartbeat.set_blocks_quarantined(load.blocks_quarantined);
  return heartbeat;
}

pb::Token ToProto(const TokenOutput& output) {
  pb::Token token;
  token.set_request_id(output.id.value());
  token.set_epoch(output.epoch.value());
  token.set_sample(output.sample);
  token.set_index(output.index);
  token.set_token(output.token.token);
  token.set_logprob(output.token.logprob);
  for (const TokenLogprob& top : output.token.top) {
    pb::TopLogprob* entry = token.add_top();
    entry->set_token(top.token);
    entry->set_logprob(top.logprob);
  }
  token.set_finish(static_cast<int>(output.finish));
  return token;
}

pb::Handoff ToProto(const HandoffReport& report) {
  pb::Handoff handoff;
  handoff.set_request_id(report.id.value());
  handoff.set_epoch(report.epoch.value());
  switch (report.outcome) {
    case HandoffReport::Outcome::kCommitted:
      handoff.set_outcome(pb::Handoff::COMMITTED);
      break;
    case HandoffReport::Outcome::kRefused:
      handoff.set_outcome(pb::Handoff::REFUSED);
      break;
    case HandoffReport::Outcome::kFailed:
      handoff.set_outcome(pb::Handoff::FAILED);
      break;
    case HandoffReport::Outcome::kNotNeeded:
      handoff.set_outcome(pb::Handoff::NOT_NEEDED);
      break;
  }
  handoff.set_code(static_cast<int>(report.status.code()));
  handoff.set_message(std::string(Message(report.status)));
  handoff.set_bytes(report.bytes);
  handoff.set_transfer_ms(ToMillis(report.transfer));
  handoff.set_gigabytes_per_second(report.bytes_per_second / 1e9);
  handoff.set_transport(report.transport);
  handoff.set_reused_blocks(report.reused_blocks);
  return handoff;
}

pb::CacheEvent ToProto(const CacheEvent& event) {
  pb::CacheEvent to;
  to.set_sequence(event.sequence);
  switch (event.kind) {
    case CacheEvent::Kind::kStored:
      to.set_kind(pb::CacheEvent::STORED);
      break;
    case CacheEvent::Kind::kRemoved:
      to.set_kind(pb::CacheEvent::REMOVED);
      break;
    case CacheEvent::Kind::kCleared:
      to.set_kind(pb::CacheEvent::CLEARED);
      break;
  }
  std::string& hashes = *to.mutable_hashes();
  hashes.resize(event.blocks.size() * sizeof(Hash128));
  static_assert(sizeof(Hash128) == 16 && offsetof(Hash128, low) == 8);
  if (!event.blocks.empty()) std::memcpy(hashes.data(), event.blocks.data(), hashes.size());
  return to;
}

}  // namespace baton
