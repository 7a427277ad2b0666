#include "common/cluster/wire/report_wire.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "common/cluster/wire/micros_wire.h"

namespace baton {
namespace wire = worker::v1;

static_assert(std::endian::native == std::endian::little && sizeof(Hash128) == 16 &&
                  offsetof(Hash128, low) == 8,
              "hashes are copied as they lie in memory");

namespace {

// ---- heartbeat

wire::Heartbeat ToProto(const WorkerLoad& load) {
  wire::Heartbeat heartbeat;
  heartbeat.set_running(load.engine.running);
  heartbeat.set_waiting(load.engine.waiting);
  heartbeat.set_awaiting_kv(load.engine.awaiting_kv);
  heartbeat.set_queued_tokens(load.engine.queued_tokens);
  heartbeat.set_blocks_free(load.engine.blocks_free);
  heartbeat.set_blocks_total(load.engine.blocks_total);
  heartbeat.set_blocks_expected(load.engine.blocks_expected);
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
    wire::PeerTransport* entry = heartbeat.add_peers();
    entry->set_peer(peer.value());
    entry->set_transport(traffic.transport);
    entry->set_bytes(traffic.bytes);
    entry->set_transfers(traffic.transfers);
    entry->set_bytes_per_second(traffic.bytes_per_second);
    entry->set_not_taken(traffic.not_taken);
    entry->set_writes(traffic.writes);
    entry->set_resent_blocks(traffic.resent_blocks);
    entry->set_checksum_errors(traffic.checksum_errors);
    entry->set_fences(traffic.fences);
    entry->set_open(traffic.open);
    entry->set_quarantined_blocks(traffic.quarantined_blocks);
    entry->set_oldest_ms(traffic.oldest_ms);
  }
  heartbeat.set_prompt_tokens(load.engine.prompt_tokens);
  heartbeat.set_cached_tokens(load.engine.cached_tokens);
  heartbeat.set_output_tokens(load.engine.output_tokens);
  heartbeat.set_preemptions(load.engine.preemptions);
  heartbeat.set_drafts(load.engine.drafts);
  heartbeat.set_accepted_drafts(load.engine.accepted_drafts);
  heartbeat.set_draining(load.draining);
  heartbeat.set_blocks_quarantined(load.blocks_quarantined);
  for (const RankTimes& rank : load.engine.ranks) {
    wire::RankTimes* entry = heartbeat.add_ranks();
    entry->set_steps(rank.steps);
    entry->set_step_seconds(rank.step_seconds);
    if (rank.exchange_seconds) entry->set_exchange_seconds(*rank.exchange_seconds);
  }
  for (const CacheGroupLoad& group : load.cache_groups) {
    wire::CacheGroup* entry = heartbeat.add_cache_groups();
    entry->set_name(group.name);
    entry->set_layers(group.layers);
    entry->set_bytes(group.bytes);
    entry->set_blocks_held(group.blocks_held);
  }
  return heartbeat;
}

WorkerLoad LoadFromProto(const wire::Heartbeat& in) {
  WorkerLoad out;
  out.engine.running = std::max(0, in.running());
  out.engine.waiting = std::max(0, in.waiting());
  out.engine.awaiting_kv = std::max(0, in.awaiting_kv());
  out.engine.queued_tokens = std::max<int64_t>(0, in.queued_tokens());
  out.engine.blocks_total = in.blocks_total();
  out.engine.blocks_free = in.blocks_free();
  out.engine.blocks_expected = in.blocks_expected();
  out.engine.blocks_cached = in.blocks_cached();
  out.engine.blocks_leaked = in.blocks_leaked();
  out.engine.prompt_tokens = in.prompt_tokens();
  out.engine.cached_tokens = in.cached_tokens();
  out.engine.output_tokens = in.output_tokens();
  out.engine.preemptions = in.preemptions();
  out.engine.drafts = in.drafts();
  out.engine.accepted_drafts = in.accepted_drafts();
  // max(0, NaN) is 0: a cost is never NaN.
  out.engine.step_ms_base = std::max(0.0, in.step_ms_base());
  out.engine.step_ms_per_token = std::max(0.0, in.step_ms_per_token());
  out.engine.step_ms_per_token_context = std::max(0.0, in.step_ms_per_token_context());
  out.engine.step_ms_per_prompt_token = std::max(0.0, in.step_ms_per_prompt_token());
  out.engine.step_ms_per_prompt_token_context =
      std::max(0.0, in.step_ms_per_prompt_token_context());
  out.engine.ranks.reserve(in.ranks_size());
  for (const wire::RankTimes& from : in.ranks()) {
    RankTimes& rank = out.engine.ranks.emplace_back();
    rank.steps = std::max<int64_t>(0, from.steps());
    rank.step_seconds = std::max(0.0, from.step_seconds());
    if (from.has_exchange_seconds()) {
      rank.exchange_seconds = std::max(0.0, from.exchange_seconds());
    }
  }
  out.digest = {in.digest_high(), in.digest_low()};
  out.digest_sequence = in.digest_sequence();
  for (const wire::PeerTransport& peer : in.peers()) {
    PeerTraffic& traffic = out.peers[WorkerId(peer.peer())];
    traffic.transport = peer.transport();
    traffic.bytes = peer.bytes();
    traffic.transfers = peer.transfers();
    traffic.bytes_per_second = std::max(0.0, peer.bytes_per_second());
    traffic.not_taken = peer.not_taken();
    traffic.writes = peer.writes();
    traffic.resent_blocks = peer.resent_blocks();
    traffic.checksum_errors = peer.checksum_errors();
    traffic.fences = peer.fences();
    traffic.open = peer.open();
    traffic.quarantined_blocks = peer.quarantined_blocks();
    traffic.oldest_ms = std::max(0.0, peer.oldest_ms());
  }
  for (const wire::CacheGroup& group : in.cache_groups()) {
    out.cache_groups.push_back({.name = group.name(),
                                .layers = std::max(0, group.layers()),
                                .bytes = group.bytes(),
                                .blocks_held = std::max<int64_t>(0, group.blocks_held())});
  }
  out.blocks_quarantined = std::max(0, in.blocks_quarantined());
  out.draining = in.draining();
  return out;
}

// ---- tokens

template <class Message>
void SetTop(const std::vector<TokenLogprob>& in, Message& out) {
  for (const TokenLogprob& top : in) {
    wire::TopLogprob* entry = out.add_top();
    entry->set_token(top.token);
    entry->set_logprob(top.logprob);
  }
}

// Of a Token or a PromptLogprob.
template <class Message>
SampledToken SampledFromProto(const Message& in) {
  SampledToken out{in.token(), in.logprob(), {}};
  out.top.reserve(in.top_size());
  for (const wire::TopLogprob& top : in.top()) out.top.push_back({top.token(), top.logprob()});
  return out;
}

wire::Token ToProto(const TokenOutput& output) {
  wire::Token token;
  token.set_request_id(output.id.value());
  token.set_epoch(output.epoch.value());
  token.set_sample(output.sample);
  token.set_index(output.index);
  token.set_token(output.token.token);
  token.set_logprob(output.token.logprob);
  SetTop(output.token.top, token);
  token.set_finish(static_cast<int>(output.finish));
  token.set_cached_tokens(output.cached_tokens);
  for (const SampledToken& one : output.prompt) {
    wire::PromptLogprob* entry = token.add_prompt();
    entry->set_token(one.token);
    entry->set_logprob(one.logprob);
    SetTop(one.top, *entry);
  }
  token.mutable_pooled()->Add(output.pooled.begin(), output.pooled.end());
  return token;
}

StatusOr<TokenOutput> TokenFromProto(const wire::Token& in) {
  if (in.finish() < 0 || in.finish() > static_cast<int>(FinishReason::kHandedOff)) {
    return InvalidArgument(
        "a token of request {} has the unknown finish {}", in.request_id(), in.finish());
  }
  TokenOutput out;
  out.id = RequestId(in.request_id());
  out.epoch = Epoch(in.epoch());
  out.sample = in.sample();
  out.index = in.index();
  out.token = SampledFromProto(in);
  out.finish = static_cast<FinishReason>(in.finish());
  out.cached_tokens = in.cached_tokens();
  out.prompt.reserve(in.prompt_size());
  for (const wire::PromptLogprob& one : in.prompt()) out.prompt.push_back(SampledFromProto(one));
  out.pooled.assign(in.pooled().begin(), in.pooled().end());
  return out;
}

// ---- the end of a request

wire::Finished ToProto(const FinishedReport& report) {
  wire::Finished finished;
  finished.set_request_id(report.id.value());
  finished.set_epoch(report.epoch.value());
  finished.set_queue_us(ToMicros(report.times.queued));
  finished.set_prefill_us(ToMicros(report.times.prefill));
  finished.set_cached_tokens(report.times.cached_tokens);
  return finished;
}

wire::Failed ToProto(const FailedReport& report) {
  wire::Failed failed;
  failed.set_request_id(report.id.value());
  failed.set_epoch(report.epoch.value());
  failed.set_code(static_cast<int>(report.status.code()));
  failed.set_message(std::string(Message(report.status)));
  failed.set_retryable(report.retryable);
  return failed;
}

FinishedReport FinishedFromProto(const wire::Finished& in) {
  FinishedReport out;
  out.id = RequestId(in.request_id());
  out.epoch = Epoch(in.epoch());
  out.times.queued = FromMicros(in.queue_us());
  out.times.prefill = FromMicros(in.prefill_us());
  out.times.cached_tokens = in.cached_tokens();
  return out;
}

// An unknown code becomes kUnknown.
Status StatusFromProto(int32_t code, const std::string& message) {
  const bool known = code > 0 && code <= static_cast<int32_t>(StatusCode::kUnauthenticated);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown, message);
}

FailedReport FailedFromProto(const wire::Failed& in) {
  return {RequestId(in.request_id()),
          Epoch(in.epoch()),
          StatusFromProto(in.code(), in.message()),
          in.retryable()};
}

// ---- hand-offs

wire::Handoff ToProto(const HandoffReport& report) {
  wire::Handoff handoff;
  handoff.set_request_id(report.id.value());
  handoff.set_epoch(report.epoch.value());
  switch (report.outcome) {
    case HandoffReport::Outcome::kCommitted:
      handoff.set_outcome(wire::Handoff::COMMITTED);
      break;
    case HandoffReport::Outcome::kRefused:
      handoff.set_outcome(wire::Handoff::REFUSED);
      break;
    case HandoffReport::Outcome::kFailed:
      handoff.set_outcome(wire::Handoff::FAILED);
      break;
    case HandoffReport::Outcome::kNotNeeded:
      handoff.set_outcome(wire::Handoff::NOT_NEEDED);
      break;
  }
  handoff.set_code(static_cast<int>(report.status.code()));
  handoff.set_message(std::string(Message(report.status)));
  handoff.set_bytes(report.bytes);
  handoff.set_transfer_us(ToMicros(report.transfer));
  handoff.set_bytes_per_second(report.bytes_per_second);
  handoff.set_transport(report.transport);
  handoff.set_reused_blocks(report.reused_blocks);
  return handoff;
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
  const bool failed = out.outcome == HandoffReport::Outcome::kRefused ||
                      out.outcome == HandoffReport::Outcome::kFailed;
  if (failed) out.status = StatusFromProto(in.code(), in.message());
  out.bytes = in.bytes();
  out.transfer = FromMicros(in.transfer_us());
  out.bytes_per_second = std::max(0.0, in.bytes_per_second());
  out.transport = in.transport();
  out.reused_blocks = in.reused_blocks();
  return out;
}

// ---- cache events

wire::CacheEvent ToProto(const CacheEvent& event) {
  wire::CacheEvent to;
  to.set_sequence(event.sequence);
  switch (event.kind) {
    case CacheEvent::Kind::kStored:
      to.set_kind(wire::CacheEvent::STORED);
      break;
    case CacheEvent::Kind::kRemoved:
      to.set_kind(wire::CacheEvent::REMOVED);
      break;
    case CacheEvent::Kind::kCleared:
      to.set_kind(wire::CacheEvent::CLEARED);
      break;
  }
  std::string& hashes = *to.mutable_hashes();
  hashes.resize(event.blocks.size() * sizeof(Hash128));
  if (!event.blocks.empty()) std::memcpy(hashes.data(), event.blocks.data(), hashes.size());
  return to;
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
  if (bytes.size() % sizeof(Hash128) != 0) {
    return InvalidArgument("cache event {} has {} bytes of hashes; they come in multiples of {}",
                           in.sequence(),
                           bytes.size(),
                           sizeof(Hash128));
  }
  out.blocks.resize(bytes.size() / sizeof(Hash128));
  if (!bytes.empty()) std::memcpy(out.blocks.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

// ---- the message

wire::ToRouter ReportToProto(const WorkerReport& report) {
  wire::ToRouter out;
  if (report.load.has_value()) *out.mutable_heartbeat() = ToProto(*report.load);
  for (const TokenOutput& token : report.tokens) *out.add_tokens() = ToProto(token);
  for (const HandoffReport& handoff : report.handoffs) *out.add_handoffs() = ToProto(handoff);
  for (const FinishedReport& finished : report.finished) *out.add_finished() = ToProto(finished);
  for (const FailedReport& failed : report.failed) *out.add_failed() = ToProto(failed);
  for (const CacheEvent& event : report.cache_events) *out.add_cache_events() = ToProto(event);
  if (report.drain) out.mutable_drain();
  return out;
}

StatusOr<WorkerReport> ReportFromProto(const wire::ToRouter& message) {
  if (message.has_join()) return InvalidArgument("`join` comes once, in the first message");
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
  for (const wire::Finished& in : message.finished()) out.finished.push_back(FinishedFromProto(in));
  for (const wire::Failed& in : message.failed()) out.failed.push_back(FailedFromProto(in));
  for (const wire::CacheEvent& event : message.cache_events()) {
    BATON_ASSIGN_OR_RETURN(CacheEvent one, EventFromProto(event));
    out.cache_events.push_back(std::move(one));
  }
  return out;
}

}  // namespace baton
