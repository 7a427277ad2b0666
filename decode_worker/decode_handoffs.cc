#include "decode_worker/decode_handoffs.h"

#include "common/base/overloaded.h"

namespace baton {
namespace {

constexpr size_t kRememberedRefusals = 4096;

}  // namespace

bool DecodeHandoffs::IsGranted(const Handoff& handoff) {
  return std::holds_alternative<Granted>(handoff.state) ||
         std::holds_alternative<NotNeeded>(handoff.state) ||
         std::holds_alternative<Aborting>(handoff.state);
}

bool DecodeHandoffs::HasReservation(const Handoff& handoff) {
  return std::holds_alternative<Reserved>(handoff.state) || IsGranted(handoff);
}

DecodeHandoffs::Handoffs::value_type* DecodeHandoffs::OfSession(const SessionKey& session) {
  const auto known = sessions_.find(session);
  return known == sessions_.end() ? nullptr : &*handoffs_.find(known->second);
}

Status DecodeHandoffs::OnDispatch(RouterKey router, const DispatchCommand& dispatch, Time now) {
  const Request& request = dispatch.request;
  const RequestKey key{request.id, request.epoch};
  const SessionKey session{dispatch.session, request.epoch};
  if (handoffs_.contains(key) || sessions_.contains(session)) return AlreadyKnown(key, session);
  Handoff handoff{
      .router = router,
      .session = session,
      .peer = dispatch.peer.id,
      .samples = request.samples,
      .total_tokens = static_cast<uint32_t>(request.tokens.size()),
      .peer_first = request.peer_first,
      .state = Dispatched{now + (request.peer_first ? limits_.queue_wait : limits_.match_wait)}};
  handoffs_.emplace(key, std::move(handoff));
  sessions_.emplace(session, key);
  if (const auto early = unmatched_.find(session); early != unmatched_.end()) {
    const uint32_t total_tokens = early->second.total_tokens;
    unmatched_.erase(early);
    Match(handoffs_.at(key), total_tokens);
  } else if (const auto refusal = refusals_.find(session);
             refusal != refusals_.end() && IsCancelled(refusal->second)) {
    EndNotNeeded(key);
  }
  return OkStatus();
}

void DecodeHandoffs::OnOffer(const SessionKey& session, uint32_t total_tokens, Time now) {
  if (const auto refusal = refusals_.find(session); refusal != refusals_.end()) {
    return Refuse(session, refusal->second);
  }
  if (auto* entry = OfSession(session)) return Match(entry->second, total_tokens);
  if (leaving_) return RefuseUnmatched(session);
  if (unmatched_.size() >= limits_.unmatched_offers) {
    return Refuse(session,
                  MakeStatus(StatusCode::kResourceExhausted,
                             "{} offers wait for their dispatch; no more are accepted",
                             unmatched_.size()));
  }
  unmatched_[session] = {now, total_tokens};
}

void DecodeHandoffs::Match(Handoff& handoff, uint32_t total_tokens) {
  if (total_tokens != handoff.total_tokens) {
    return Refuse(handoff.session,
                  InvalidArgument("OFFER is of {} tokens; the dispatched request has {}",
                                  total_tokens,
                                  handoff.total_tokens));
  }
  if (std::holds_alternative<Dispatched>(handoff.state)) {
    handoff.state = Offered{};
    if (handoff.peer_first) actions_.emplace_back(StartRequest{sessions_.at(handoff.session)});
  } else if (auto* reserved = std::get_if<Reserved>(&handoff.state)) {
    Grant(handoff, std::move(reserved->reservation));
  }
}

void DecodeHandoffs::OnReserved(const KvReservation& reservation) {
  const RequestKey key{reservation.id, reservation.epoch};
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end()) {
    actions_.emplace_back(ReleaseKv{key});
    return;
  }
  Handoff& handoff = found->second;
  if (const auto* dispatched = std::get_if<Dispatched>(&handoff.state)) {
    handoff.state = Reserved{dispatched->until, reservation};
  } else if (std::holds_alternative<Offered>(handoff.state)) {
    Grant(handoff, reservation);
  }
}

void DecodeHandoffs::Grant(Handoff& handoff, KvReservation reservation) {
  actions_.emplace_back(GrantOffer{handoff.session, std::move(reservation)});
  handoff.state = Granted{};
}

void DecodeHandoffs::OnWithdrawn(const SessionKey& session, const Status& status, Time now) {
  const bool unmatched = unmatched_.erase(session) > 0;
  auto* entry = OfSession(session);
  if (entry == nullptr) {
    if (unmatched && IsCancelled(status)) RememberRefusal(session, status);
    return;
  }
  Handoff& handoff = entry->second;
  if (IsGranted(handoff)) {  // OnReleased follows
    if (IsCancelled(status) && std::holds_alternative<Granted>(handoff.state)) {
      handoff.state = NotNeeded{};
    }
  } else if (IsCancelled(status)) {
    EndNotNeeded(RequestKey(entry->first));
  } else if (auto* reserved = std::get_if<Reserved>(&handoff.state)) {
    reserved->until = now + limits_.match_wait;
  } else {
    // The prefill worker reports the end to the router, or the router loses the prefill worker.
    // The prefill worker may offer again until the router cancels the request or match_wait passes.
    handoff.state = Dispatched{now + limits_.match_wait};
  }
}

void DecodeHandoffs::OnCommitted(const SessionKey& session,
                                 StatusOr<std::vector<SampledToken>> first_tokens,
                                 const TransferStats& stats) {
  auto* entry = OfSession(session);
  if (entry == nullptr) return;
  const RequestKey key = entry->first;
  const int32_t samples = entry->second.samples;
  if (first_tokens.ok() && first_tokens->size() != static_cast<size_t>(samples)) {
    first_tokens = InvalidArgument(
        "SEAL has first tokens for {} samples; the request has {}", first_tokens->size(), samples);
  }
  using Outcome = HandoffReport::Outcome;
  HandoffReport report = ReportOf(
      key, first_tokens.ok() ? Outcome::kCommitted : Outcome::kFailed, first_tokens.status());
  report.bytes = stats.bytes;
  report.transport = stats.transport;
  report.reused_blocks = static_cast<int32_t>(stats.cached_blocks);
  if (first_tokens.ok()) {
    actions_.emplace_back(ActivateRequest{key, *std::move(first_tokens)});
  } else {
    actions_.emplace_back(DropRequest{key});
  }
  actions_.emplace_back(ReleaseKv{key});
  Report(*entry, std::move(report));
  Erase(key);
}

void DecodeHandoffs::OnReleased(const SessionKey& session, const Status& status) {
  auto* entry = OfSession(session);
  if (entry == nullptr) return;
  const RequestKey key = entry->first;
  const bool aborting = std::holds_alternative<Aborting>(entry->second.state);
  const bool not_needed = std::holds_alternative<NotNeeded>(entry->second.state);
  if (!aborting && (not_needed || IsCancelled(status))) return EndNotNeeded(key);
  actions_.emplace_back(ReleaseKv{key});
  if (!aborting) {
    actions_.emplace_back(DropRequest{key});
    Report(*entry, ReportOf(key, HandoffReport::Outcome::kFailed, status));
  }
  Erase(key);
}

// The prefill worker called the hand-off off, because the router cancelled the request or because
// the request ended with its first token. Neither is a failure.
void DecodeHandoffs::EndNotNeeded(const RequestKey& key) {
  const auto& entry = *handoffs_.find(key);
  if (HasReservation(entry.second)) actions_.emplace_back(ReleaseKv{key});
  actions_.emplace_back(DropRequest{key, /*complete=*/true});
  Report(entry, ReportOf(key, HandoffReport::Outcome::kNotNeeded, OkStatus()));
  Erase(key);
}

bool DecodeHandoffs::OnEnded(const RequestKey& key, const Status& status) {
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end()) return true;
  // No room: the prefill worker receives REFUSE, keeps the KV and reports the refusal; the router
  // then names another decode worker.
  const bool refused = status.code() == StatusCode::kResourceExhausted && !IsGranted(found->second);
  GiveUp(key, status);
  return !refused;
}

void DecodeHandoffs::GiveUp(const RequestKey& key, const Status& reason) {
  Handoff& handoff = handoffs_.at(key);
  if (IsGranted(handoff)) {
    actions_.emplace_back(AbortSession{handoff.session, reason});  // OnReleased follows
    handoff.state = Aborting{};
    return;
  }
  if (std::holds_alternative<Offered>(handoff.state)) {
    Refuse(handoff.session, reason);
  } else {
    RememberRefusal(handoff.session, reason);
  }
  if (HasReservation(handoff)) actions_.emplace_back(ReleaseKv{key});
  Erase(key);
}

void DecodeHandoffs::Refuse(const SessionKey& session, Status reason) {
  actions_.emplace_back(RefuseOffer{session, std::move(reason)});
}

void DecodeHandoffs::RememberRefusal(const SessionKey& session, const Status& reason) {
  if (!refusals_.try_emplace(session, reason).second) return;
  refusal_order_.push_back(session);
  if (refusal_order_.size() > kRememberedRefusals) {
    refusals_.erase(refusal_order_.front());
    refusal_order_.pop_front();
  }
}

void DecodeHandoffs::Report(const Handoffs::value_type& entry, HandoffReport report) {
  const Handoff& handoff = entry.second;
  actions_.emplace_back(ReportHandoff{handoff.router, handoff.peer, std::move(report)});
}

void DecodeHandoffs::Erase(const RequestKey& key) {
  const auto found = handoffs_.find(key);
  sessions_.erase(found->second.session);
  handoffs_.erase(found);
}

void DecodeHandoffs::OnCancel(RouterKey router, const RequestKey& key) {
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end() || found->second.router != router) return;
  GiveUp(key, Status(StatusCode::kCancelled, "the request was cancelled"));
}

void DecodeHandoffs::OnRouterLost(RouterKey router) {
  std::vector<RequestKey> lost;
  for (const auto& [key, handoff] : handoffs_) {
    if (handoff.router == router) lost.push_back(key);
  }
  for (const RequestKey& key : lost) OnCancel(router, key);
}

void DecodeHandoffs::RefuseUnmatched(const SessionKey& session) {
  unmatched_.erase(session);
  Refuse(session,
         Status(StatusCode::kUnavailable, "no router dispatched this request to the worker"));
}

void DecodeHandoffs::OnLeaving() {
  leaving_ = true;
  while (!unmatched_.empty()) RefuseUnmatched(SessionKey(unmatched_.begin()->first));
}

void DecodeHandoffs::OnTime(Time now) {
  std::vector<SessionKey> orphans;
  for (const auto& [session, offer] : unmatched_) {
    if (now - offer.since > limits_.match_wait) orphans.push_back(session);
  }
  for (const SessionKey& session : orphans) RefuseUnmatched(session);
  std::vector<RequestKey> late;
  for (const auto& [key, handoff] : handoffs_) {
    const Time until = std::visit(Overloaded{[](const Dispatched& state) { return state.until; },
                                             [](const Reserved& state) { return state.until; },
                                             [](const auto&) { return kNever; }},
                                  handoff.state);
    if (now > until) late.push_back(key);
  }
  for (const RequestKey& key : late) {
    const Status why(StatusCode::kUnavailable, "the prefill worker offered no KV in time");
    actions_.emplace_back(ReportFailure{handoffs_.at(key).router, key, why});
    actions_.emplace_back(DropRequest{key});
    GiveUp(key, why);
  }
}

}  // namespace baton
