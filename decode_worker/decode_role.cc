#include "decode_worker/decode_role.h"

#include "common/log/log.h"

namespace baton {
namespace {

constexpr size_t kRememberedRefusals = 4096;

const Logger kLog("decode");

}  // namespace

StatusOr<std::unique_ptr<DecodeRole>> DecodeRole::Create(Worker& worker,
                                                         KvTransferOptions transfer,
                                                         const DecodeOptions& options) {
  std::unique_ptr<DecodeRole> role(new DecodeRole(worker, options));
  transfer.log = [](std::string_view line) { kLog.Warning("{}", line); };
  BATON_ASSIGN_OR_RETURN(role->receiver_, KvReceiver::Create(std::move(transfer), *role));
  role->service_ = std::make_unique<KvControlService>(*role->receiver_);
  grpc::Service* services[] = {role->service_.get()};
  BATON_ASSIGN_OR_RETURN(role->server_, RpcServer::Start(options.listen, services, options.limits));
  return role;
}

void DecodeRole::Stop() {
  server_->Shutdown(Duration::zero());
  receiver_.reset();
}

Status DecodeRole::OnDispatch(RouterKey router, DispatchCommand dispatch) {
  Request& request = dispatch.request;
  const Key key{request.id, request.epoch};
  const SessionKey session{dispatch.session, request.epoch};
  if (handoffs_.contains(key) || sessions_.contains(session)) return AlreadyKnown(key, session);
  auto handoff = std::make_unique<Handoff>();
  handoff->router = router;
  handoff->session = session;
  handoff->peer = dispatch.peer.id;
  handoff->samples = request.samples;
  handoff->total_tokens = static_cast<uint32_t>(request.tokens.size());
  handoff->since = worker_.clock().Now();
  handoffs_.try_emplace(key, std::move(handoff));
  sessions_[session] = key;
  worker_.engine().Submit(std::move(request));
  if (const auto early = unmatched_.find(session); early != unmatched_.end()) {
    const uint32_t total_tokens = early->second.total_tokens;
    unmatched_.erase(early);
    Offered(session, total_tokens);
  } else if (const auto over = refusals_.find(session);
             over != refusals_.end() && IsCancelled(over->second)) {
    EndNotNeeded(key);
  }
  return OkStatus();
}

void DecodeRole::OnOffer(const WorkerId&,
                         SessionId session,
                         Epoch epoch,
                         const struct Offer& offer) {
  const uint32_t total_tokens = offer.total_tokens;
  worker_.loop().PostInternal(
      [this, key = SessionKey(session, epoch), total_tokens] { Offered(key, total_tokens); });
}

void DecodeRole::Offered(const SessionKey& session, uint32_t total_tokens) {
  if (const auto refusal = refusals_.find(session); refusal != refusals_.end()) {
    return Refuse(session, refusal->second);
  }
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) {
    if (leaving_) return RefuseUnmatched(session);
    if (unmatched_.size() >= options_.max_unmatched_offers) {
      return Refuse(session,
                    MakeStatus(StatusCode::kResourceExhausted,
                               "{} offers wait for their dispatch; no more are accepted",
                               unmatched_.size()));
    }
    unmatched_[session] = {worker_.clock().Now(), total_tokens};
    return;
  }
  Handoff& handoff = *handoffs_.at(known->second);
  if (total_tokens != handoff.total_tokens) {
    return Refuse(session,
                  InvalidArgument("OFFER is of {} tokens; the dispatched request has {}",
                                  total_tokens,
                                  handoff.total_tokens));
  }
  handoff.offered = true;
  GrantIfReady(handoff);
}

void DecodeRole::OnKvReserved(const KvReservation& reservation) {
  const auto found = handoffs_.find({reservation.id, reservation.epoch});
  if (found == handoffs_.end()) {
    worker_.engine().ReleaseKv(reservation.id, reservation.epoch);
    return;
  }
  found->second->reservation = reservation;
  GrantIfReady(*found->second);
}

void DecodeRole::GrantIfReady(Handoff& handoff) {
  if (!handoff.offered || handoff.granted || !handoff.reservation.has_value()) return;
  handoff.granted = true;
  receiver_->Grant(handoff.session.first,
                   handoff.session.second,
                   static_cast<uint32_t>(handoff.reservation->cached_blocks),
                   handoff.reservation->blocks);
}

void DecodeRole::Refuse(const SessionKey& session, const Status& reason) {
  receiver_->Refuse(session.first, session.second, reason);
}

void DecodeRole::OnWithdrawn(SessionId session, Epoch epoch, const Status& status) {
  worker_.loop().PostInternal([this, key = SessionKey(session, epoch), status] {
    const bool unmatched = unmatched_.erase(key) > 0;
    const auto known = sessions_.find(key);
    if (known == sessions_.end()) {
      if (unmatched && IsCancelled(status)) RememberRefusal(key, status);
      return;
    }
    // The prefill worker reports the end to the router, or the router loses the prefill worker.
    // The prefill worker may offer again until the router cancels the request or match_wait passes.
    Handoff& handoff = *handoffs_.at(known->second);
    handoff.withdrawn = IsCancelled(status);
    if (handoff.granted) return;  // Released follows
    if (handoff.withdrawn) return EndNotNeeded(Key(known->second));
    handoff.offered = false;
    handoff.since = worker_.clock().Now();
    kLog.Info("request {}: the offer was withdrawn: {}", known->second.first, Message(status));
  });
}

// Busy-polls for `duration`, because SEAL is due and then a sequence starts to decode. Zero ends
// the busy-poll.
void DecodeRole::BusyPollForSeal(Duration duration) {
  worker_.loop().BusyPollFor(duration);
  worker_.engine().BusyPollFor(duration);
}

void DecodeRole::OnCommitted(SessionId session,
                             Epoch epoch,
                             const std::string& payload,
                             const TransferStats& stats) {
  worker_.loop().PostInternal([this, key = SessionKey(session, epoch), payload, stats] {
    const auto known = sessions_.find(key);
    if (known != sessions_.end()) Committed(Key(known->second), payload, stats);
  });
}

void DecodeRole::Committed(const Key& key, const std::string& payload, const TransferStats& stats) {
  const Handoff& handoff = *handoffs_.at(key);
  StatusOr<std::vector<SampledToken>> first = DecodeFirstTokens(payload, handoff.samples);
  using Outcome = HandoffReport::Outcome;
  HandoffReport report =
      ReportOf(key, first.ok() ? Outcome::kCommitted : Outcome::kFailed, first.status());
  report.bytes = stats.bytes;
  report.transport = stats.transport;
  report.reused_blocks = static_cast<int32_t>(stats.cached_blocks);
  if (first.ok()) {
    worker_.engine().Activate(key.first, key.second, *std::move(first));
  } else {
    worker_.Drop(key.first, key.second);
  }
  BusyPollForSeal(Duration{});
  worker_.engine().ReleaseKv(key.first, key.second);
  PeerTraffic& traffic = traffic_[handoff.peer];
  traffic.transport = stats.transport;
  traffic.bytes += stats.bytes;
  ++traffic.transfers;
  worker_.Report(handoff.router, report);
  Erase(key);
}

void DecodeRole::OnReleased(SessionId session, Epoch epoch, const Status& status) {
  worker_.loop().PostInternal([this, key = SessionKey(session, epoch), status] {
    const auto known = sessions_.find(key);
    if (known != sessions_.end()) Released(Key(known->second), status);
  });
}

void DecodeRole::Released(const Key& key, const Status& status) {
  const Handoff& handoff = *handoffs_.at(key);
  const bool withdrawn = handoff.withdrawn || IsCancelled(status);
  if (handoff.ended.ok() && withdrawn) return EndNotNeeded(key);
  worker_.engine().ReleaseKv(key.first, key.second);
  if (handoff.ended.ok()) {
    worker_.Drop(key.first, key.second);
    worker_.Report(handoff.router, ReportOf(key, HandoffReport::Outcome::kFailed, status));
  }
  Erase(key);
}

// The prefill worker called the hand-off off, because the router cancelled the request or because
// the request ended with its first token. Neither is a failure.
void DecodeRole::EndNotNeeded(const Key& key) {
  const Handoff& handoff = *handoffs_.at(key);
  if (handoff.reservation.has_value()) worker_.engine().ReleaseKv(key.first, key.second);
  worker_.DropComplete(key.first, key.second);
  worker_.Report(handoff.router, ReportOf(key, HandoffReport::Outcome::kNotNeeded, OkStatus()));
  Erase(key);
}

bool DecodeRole::OnEnded(RequestId id, Epoch epoch, const Status& status) {
  const Key key{id, epoch};
  const auto found = handoffs_.find(key);
  if (found == handoffs_.end()) return true;
  Handoff& handoff = *found->second;
  // No room: the prefill worker receives REFUSE, keeps the KV and reports the refusal; the router
  // then names another decode worker.
  const bool refused = status.code() == StatusCode::kResourceExhausted && !handoff.granted;
  handoff.ended = status;
  GiveUp(key, status);
  return !refused;
}

void DecodeRole::GiveUp(const Key& key, const Status& reason) {
  const Handoff& handoff = *handoffs_.at(key);
  const auto& [session, epoch] = handoff.session;
  if (handoff.granted) {
    receiver_->Abort(session, epoch, reason);  // Released follows
    return;
  }
  if (handoff.offered) {
    Refuse(handoff.session, reason);
  } else {
    RememberRefusal(handoff.session, reason);
  }
  if (handoff.reservation.has_value()) worker_.engine().ReleaseKv(key.first, key.second);
  Erase(key);
}

void DecodeRole::RememberRefusal(const SessionKey& session, const Status& reason) {
  if (!refusals_.try_emplace(session, reason).second) return;
  refusal_order_.push_back(session);
  if (refusal_order_.size() > kRememberedRefusals) {
    refusals_.erase(refusal_order_.front());
    refusal_order_.pop_front();
  }
}

void DecodeRole::Erase(const Key& key) {
  const auto found = handoffs_.find(key);
  sessions_.erase(found->second->session);
  handoffs_.erase(found);
}

void DecodeRole::OnCancel(RouterKey router, RequestId id, Epoch epoch) {
  const auto found = handoffs_.find({id, epoch});
  if (found == handoffs_.end() || found->second->router != router) return;
  found->second->ended = Status(StatusCode::kCancelled, "the request was cancelled");
  GiveUp({id, epoch}, found->second->ended);
}

void DecodeRole::OnRouterLost(RouterKey router) {
  std::vector<Key> lost;
  for (const auto& [key, handoff] : handoffs_) {
    if (handoff->router == router) lost.push_back(key);
  }
  for (const Key& key : lost) OnCancel(router, key.first, key.second);
}

void DecodeRole::RefuseUnmatched(const SessionKey& session) {
  unmatched_.erase(session);
  Refuse(session,
         Status(StatusCode::kUnavailable, "no router dispatched this request to the worker"));
}

void DecodeRole::OnLeaving(const std::string& reason) {
  leaving_ = true;
  receiver_->Leave(reason);
  // Routers send no more dispatches, so these offers cannot be matched.
  while (!unmatched_.empty()) RefuseUnmatched(SessionKey(unmatched_.begin()->first));
}

void DecodeRole::OnTick(Time now) {
  std::vector<SessionKey> orphans;
  for (const auto& [session, offer] : unmatched_) {
    if (now - offer.since > options_.match_wait) orphans.push_back(session);
  }
  for (const SessionKey& session : orphans) RefuseUnmatched(session);
  std::vector<Key> late;
  for (const auto& [key, handoff] : handoffs_) {
    if (!handoff->offered && !handoff->granted && now - handoff->since > options_.match_wait) {
      late.push_back(key);
    }
  }
  for (const Key& key : late) {
    const Status why(StatusCode::kUnavailable, "the prefill worker offered no KV in time");
    worker_.ReportFailure(handoffs_.at(key)->router, key.first, key.second, why);
    worker_.Drop(key.first, key.second);
    GiveUp(key, why);
  }
}

}  // namespace baton
