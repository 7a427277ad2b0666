#include "prefill_worker/prefill_handoffs.h"

#include <algorithm>

namespace baton {
namespace {

// The engine refuses requests with more samples.
constexpr int32_t kMaxSamples = 1024;

}  // namespace

PrefillHandoffs::Handoff* PrefillHandoffs::Find(const RequestKey& key) {
  const auto found = handoffs_.find(key);
  return found == handoffs_.end() ? nullptr : &found->second;
}

Status PrefillHandoffs::OnDispatch(RouterKey router, const DispatchCommand& dispatch) {
  const Request& request = dispatch.request;
  const RequestKey key{request.id, request.epoch};
  const SessionKey session{dispatch.session, request.epoch};
  if (handoffs_.contains(key) || sessions_.contains(session)) return AlreadyKnown(key, session);
  const int32_t samples = std::clamp(request.samples, 0, kMaxSamples);
  Handoff handoff{.router = router,
                  .total_tokens = static_cast<uint32_t>(request.tokens.size()),
                  .first_sample = request.first_sample,
                  .deadline = request.deadline,
                  .peer_first = request.peer_first,
                  .held = request.peer_first,
                  .pinned = request.pinned,
                  .session = session,
                  .peer = dispatch.peer.id,
                  .session_state = Connecting{},
                  .engine_state = Computing{std::vector<SampledToken>(samples), false}};
  handoffs_.emplace(key, std::move(handoff));
  sessions_.emplace(session, key);
  actions_.emplace_back(ConnectPeer{dispatch.peer});
  return OkStatus();
}

void PrefillHandoffs::OnPeerSettled(const WorkerId& peer, const Status& status, Time now) {
  for (auto& entry : handoffs_) {
    Handoff& handoff = entry.second;
    const bool connecting = std::holds_alternative<Connecting>(handoff.session_state);
    if (!connecting || handoff.peer != peer) continue;
    if (status.ok()) {
      OfferIfReady(handoff, now);
    } else {
      Refuse(entry, /*in_sender=*/false, status, now);
    }
  }
}

void PrefillHandoffs::OfferIfReady(Handoff& handoff, Time now) {
  if (handoff.started || handoff.peer_first) {
    Offer(handoff, now);
  } else {
    handoff.session_state = Connected{};
  }
}

void PrefillHandoffs::Offer(Handoff& handoff, Time now) {
  handoff.session_state = Offered{};
  handoff.deadline = std::min(handoff.deadline, now + limits_.handoff);
  OfferRequest offer;
  offer.session = handoff.session.first;
  offer.epoch = handoff.session.second;
  offer.peer = handoff.peer;
  offer.total_tokens = handoff.total_tokens;
  offer.timeout = std::max<Duration>(std::chrono::milliseconds(1), handoff.deadline - now);
  actions_.emplace_back(OfferKv{std::move(offer)});
  if (!handoff.blocks.empty()) {
    actions_.emplace_back(
        SendBlocks{handoff.session, 0, handoff.blocks, std::nullopt, handoff.state});
  }
  if (const auto* computed = std::get_if<Computed>(&handoff.engine_state)) {
    Seal(handoff, computed->first_tokens);
  }
}

void PrefillHandoffs::Seal(const Handoff& handoff, const std::vector<SampledToken>& first_tokens) {
  actions_.emplace_back(SealKv{.session = handoff.session,
                               .first_tokens = first_tokens,
                               .total_tokens = handoff.total_tokens,
                               .computed = handoff.last_chunk - handoff.started_at,
                               .pinned = handoff.pinned});
}

void PrefillHandoffs::Send(const Handoff& handoff,
                           const KvChunk& chunk,
                           std::optional<int32_t> layers) {
  if (!std::holds_alternative<Offered>(handoff.session_state)) return;
  actions_.emplace_back(SendBlocks{handoff.session,
                                   static_cast<uint32_t>(chunk.first_index),
                                   {chunk.blocks.begin(), chunk.blocks.end()},
                                   layers,
                                   {chunk.state.begin(), chunk.state.end()}});
}

void PrefillHandoffs::OnStarted(const RequestKey& key, Time now) {
  Handoff* handoff = Find(key);
  if (handoff == nullptr) return;
  handoff->started = true;
  handoff->started_at = now;
  if (std::holds_alternative<Connected>(handoff->session_state)) Offer(*handoff, now);
}

void PrefillHandoffs::StartIfHeld(const RequestKey& key, Handoff& handoff) {
  if (std::exchange(handoff.held, false)) actions_.emplace_back(StartRequest{key});
}

void PrefillHandoffs::OnGranted(const SessionKey& session) {
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) return;
  Handoff& handoff = handoffs_.at(known->second);
  if (handoff.session == session) StartIfHeld(known->second, handoff);
}

// Layers of a chunk are not kept: OnChunk with the same blocks follows.
void PrefillHandoffs::OnLayers(const KvChunk& chunk, int32_t layers) {
  Handoff* handoff = Find({chunk.id, chunk.epoch});
  if (handoff == nullptr) return;
  handoff->leased = true;
  Send(*handoff, chunk, layers);
}

void PrefillHandoffs::OnChunk(const KvChunk& chunk, Time now) {
  Handoff* handoff = Find({chunk.id, chunk.epoch});
  if (handoff == nullptr) return;
  handoff->leased = true;
  handoff->last_chunk = now;
  std::vector<BlockId>& blocks = handoff->blocks;
  const auto begin = static_cast<ptrdiff_t>(chunk.first_index) * chunk.groups;
  const size_t end = static_cast<size_t>(begin) + chunk.blocks.size();
  if (blocks.size() < end) blocks.resize(end);
  std::ranges::copy(chunk.blocks, blocks.begin() + begin);
  if (chunk.last) handoff->state.assign(chunk.state.begin(), chunk.state.end());
  Send(*handoff, chunk, std::nullopt);
}

void PrefillHandoffs::OnToken(const TokenOutput& token) {
  Handoff* handoff = Find({token.id, token.epoch});
  if (handoff == nullptr) return;
  auto& computing = std::get<Computing>(handoff->engine_state);
  const size_t sample = static_cast<size_t>(token.sample - handoff->first_sample);
  if (sample >= computing.first_tokens.size()) return;
  computing.first_tokens[sample] = token.token;
  if (token.finish == FinishReason::kHandedOff) computing.continues = true;
}

void PrefillHandoffs::OnEnded(const RequestKey& key, const Status& status) {
  const auto entry = handoffs_.find(key);
  if (entry == handoffs_.end()) return;
  Handoff& handoff = entry->second;
  auto computing = std::get<Computing>(std::move(handoff.engine_state));
  handoff.engine_state = Ended{};
  if (!status.ok()) {
    CloseSession(handoff, status);
  } else if (!computing.continues) {
    // The first token ended every sample: there is nothing to hand over.
    Report(*entry, ReportOf(key, HandoffReport::Outcome::kNotNeeded, OkStatus()));
    CloseSession(handoff, Status(StatusCode::kCancelled, "the request ended with its first token"));
  } else {
    if (std::holds_alternative<Offered>(handoff.session_state)) {
      Seal(handoff, computing.first_tokens);
    }
    handoff.engine_state = Computed{std::move(computing.first_tokens)};
  }
  EraseIfOver(key);
}

void PrefillHandoffs::OnRefused(const SessionKey& session, const Status& status, Time now) {
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) return;
  const auto entry = handoffs_.find(known->second);
  const Handoff& handoff = entry->second;
  if (handoff.session != session) return;
  if (std::holds_alternative<Offered>(handoff.session_state)) {
    Refuse(*entry, /*in_sender=*/true, status, now);
  }
}

void PrefillHandoffs::Report(const Handoffs::value_type& entry, HandoffReport report) {
  const Handoff& handoff = entry.second;
  actions_.emplace_back(ReportHandoff{handoff.router, handoff.peer, std::move(report)});
}

void PrefillHandoffs::Refuse(Handoffs::value_type& entry,
                             bool in_sender,
                             const Status& status,
                             Time now) {
  entry.second.session_state = Refused{now, in_sender};
  Report(entry, ReportOf(entry.first, HandoffReport::Outcome::kRefused, status));
}

void PrefillHandoffs::OnRedirect(RouterKey router, const RedirectCommand& redirect) {
  const RequestKey key{redirect.id, redirect.epoch};
  const SessionKey session{redirect.session, redirect.decode_epoch};
  Handoff* handoff = Find(key);
  if (handoff == nullptr || !std::holds_alternative<Refused>(handoff->session_state)) {
    Status gone(StatusCode::kNotFound,
                "redirect: no refused hand-off of this request waits for a redirect");
    actions_.emplace_back(ReportFailure{router, key, std::move(gone)});
    return;
  }
  if (sessions_.contains(session)) {
    actions_.emplace_back(ReportFailure{router, key, AlreadyKnown(key, session)});
    return;
  }
  if (redirect.peer_first && !handoff->held) {
    // The prompt has blocks or may take some at any time. With them it may not wait for this peer.
    const Status why = MakeStatus(
        StatusCode::kUnavailable, "worker {} must take its blocks first", redirect.peer.id);
    ReportFailed(*handoffs_.find(key), why);
    CloseSession(*handoff, why);
    return EraseIfOver(key);
  }
  CloseSession(*handoff, Status(StatusCode::kCancelled, "the KV is sent to another decode worker"));
  handoff->session = session;
  handoff->peer = redirect.peer.id;
  handoff->peer_first = redirect.peer_first;
  handoff->session_state = Connecting{};
  if (!redirect.peer_first) StartIfHeld(key, *handoff);
  sessions_.emplace(session, key);
  actions_.emplace_back(ConnectPeer{redirect.peer});
}

void PrefillHandoffs::OnFinished(const SessionKey& session,
                                 const Status& status,
                                 const TransferStats& stats,
                                 Time now) {
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) return;
  const RequestKey key = known->second;
  sessions_.erase(known);
  auto& entry = *handoffs_.find(key);
  Handoff& handoff = entry.second;
  const bool aborted =
      handoff.session != session || std::holds_alternative<Closed>(handoff.session_state);
  if (aborted) {
    --handoff.aborted_sessions;
  } else {
    handoff.session_state = Closed{};
  }
  if (status.ok()) {
    ReportCommitted(entry, stats, now);
  } else if (!aborted) {
    ReportFailed(entry, status);
  }
  EraseIfOver(key);
}

void PrefillHandoffs::ReportCommitted(const Handoffs::value_type& entry,
                                      const TransferStats& stats,
                                      Time now) {
  HandoffReport report = ReportOf(entry.first, HandoffReport::Outcome::kCommitted, OkStatus());
  report.bytes = stats.bytes;
  report.transfer = now - entry.second.last_chunk;
  report.bytes_per_second = stats.bytes_per_second;
  report.transport = stats.transport;
  report.reused_blocks = static_cast<int32_t>(stats.cached_blocks);
  Report(entry, std::move(report));
}

void PrefillHandoffs::ReportFailed(const Handoffs::value_type& entry, const Status& status) {
  const auto& [key, handoff] = entry;
  Report(entry, ReportOf(key, HandoffReport::Outcome::kFailed, status));
  if (std::holds_alternative<Computing>(handoff.engine_state)) {
    actions_.emplace_back(DropRequest{key});
  }
}

void PrefillHandoffs::CloseSession(Handoff& handoff, const Status& reason) {
  if (std::holds_alternative<Closed>(handoff.session_state)) return;
  const auto* refused = std::get_if<Refused>(&handoff.session_state);
  const bool offered = std::holds_alternative<Offered>(handoff.session_state);
  if (offered || (refused != nullptr && refused->in_sender)) {
    ++handoff.aborted_sessions;
    actions_.emplace_back(AbortSession{handoff.session, reason});  // OnFinished follows
  } else {
    sessions_.erase(handoff.session);
  }
  handoff.session_state = Closed{};
}

void PrefillHandoffs::OnCancel(RouterKey router, const RequestKey& key) {
  Handoff* handoff = Find(key);
  if (handoff == nullptr || handoff->router != router) return;
  CloseSession(*handoff, Status(StatusCode::kCancelled, "the request was cancelled"));
  EraseIfOver(key);
}

void PrefillHandoffs::OnRouterLost(RouterKey router) {
  std::vector<RequestKey> lost;
  for (const auto& [key, handoff] : handoffs_) {
    if (handoff.router == router) lost.push_back(key);
  }
  for (const RequestKey& key : lost) OnCancel(router, key);
}

void PrefillHandoffs::OnTime(Time now) {
  std::vector<RequestKey> late;
  for (const auto& [key, handoff] : handoffs_) {
    const auto* refused = std::get_if<Refused>(&handoff.session_state);
    const bool connecting = std::holds_alternative<Connecting>(handoff.session_state);
    const bool unanswered = refused != nullptr && now - refused->since > limits_.redirect_wait;
    const bool expired = (refused != nullptr || connecting) && now > handoff.deadline;
    if (unanswered || expired) late.push_back(key);
  }
  for (const RequestKey& key : late) {
    auto& entry = *handoffs_.find(key);
    const Status why(StatusCode::kDeadlineExceeded, "no decode worker accepted the KV in time");
    ReportFailed(entry, why);
    CloseSession(entry.second, why);
    EraseIfOver(key);
  }
}

void PrefillHandoffs::EraseIfOver(const RequestKey& key) {
  const auto found = handoffs_.find(key);
  const Handoff& handoff = found->second;
  if (std::holds_alternative<Computing>(handoff.engine_state)) return;
  if (!std::holds_alternative<Closed>(handoff.session_state)) return;
  if (handoff.aborted_sessions > 0) return;
  if (handoff.leased) actions_.emplace_back(ReleaseKv{key});
  handoffs_.erase(found);
}

}  // namespace baton
