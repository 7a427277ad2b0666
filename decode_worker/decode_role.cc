#include "decode_worker/decode_role.h"

#include <utility>
#include <variant>
#include <vector>

#include "common/log/log.h"
#include "common/worker/kv_control_wire.h"

namespace baton {
namespace {

const Logger kLog("decode");

}  // namespace

StatusOr<std::unique_ptr<DecodeRole>> DecodeRole::Create(Worker& worker,
                                                         KvTransferOptions transfer,
                                                         const DecodeOptions& options) {
  std::unique_ptr<DecodeRole> role(new DecodeRole(worker, options));
  BATON_ASSIGN_OR_RETURN(role->receiver_, KvReceiver::Create(std::move(transfer), *role));
  role->service_ = std::make_unique<KvControlService>(*role->receiver_, options.limits.proofs);
  grpc::Service* services[] = {role->service_.get()};
  BATON_ASSIGN_OR_RETURN(role->server_, RpcServer::Start(options.listen, services, options.limits));
  role->server_->SetServing(kv::v1::KvControl::service_full_name(), true);
  return role;
}

void DecodeRole::Stop() {
  server_->Shutdown(Duration::zero());
  receiver_.reset();
}

// ---- events

Status DecodeRole::OnDispatch(RouterKey router, DispatchCommand dispatch) {
  BATON_RETURN_IF_ERROR(handoffs_.OnDispatch(router, dispatch, worker_.clock().Now()));
  worker_.engine().Submit(std::move(dispatch.request));
  Act();
  return OkStatus();
}

void DecodeRole::OnCancel(RouterKey router, RequestId id, Epoch epoch) {
  handoffs_.OnCancel(router, {id, epoch});
  Act();
}

void DecodeRole::OnRouterLost(RouterKey router) {
  handoffs_.OnRouterLost(router);
  Act();
}

void DecodeRole::OnLeaving(const std::string& reason) {
  receiver_->Leave(reason);
  handoffs_.OnLeaving();
  Act();
}

void DecodeRole::OnKvReserved(const KvReservation& reservation) {
  handoffs_.OnReserved(reservation);
  Act();
}

bool DecodeRole::OnEnded(RequestId id, Epoch epoch, const Status& status) {
  const bool must_report = handoffs_.OnEnded({id, epoch}, status);
  Act();
  return must_report;
}

void DecodeRole::OnOffer(const WorkerId&,
                         SessionId session,
                         Epoch epoch,
                         const struct Offer& offer) {
  worker_.loop().PostInternal([this, session, epoch, total_tokens = offer.total_tokens] {
    handoffs_.OnOffer({session, epoch}, total_tokens, worker_.clock().Now());
    Act();
  });
}

void DecodeRole::OnWithdrawn(SessionId session, Epoch epoch, const Status& status) {
  worker_.loop().PostInternal([this, session, epoch, status] {
    if (!IsCancelled(status)) {
      kLog.Info("session {}: the offer was withdrawn: {}", session, Message(status));
    }
    handoffs_.OnWithdrawn({session, epoch}, status, worker_.clock().Now());
    Act();
  });
}

void DecodeRole::OnCommitted(SessionId session,
                             Epoch epoch,
                             const std::string& payload,
                             const TransferStats& stats) {
  worker_.loop().PostInternal([this, session, epoch, payload, stats] {
    handoffs_.OnCommitted({session, epoch}, DecodeFirstTokens(payload), stats);
    Act();
    BusyPollForSeal(Duration{});
  });
}

void DecodeRole::OnReleased(SessionId session, Epoch epoch, const Status& status) {
  worker_.loop().PostInternal([this, session, epoch, status] {
    handoffs_.OnReleased({session, epoch}, status);
    Act();
  });
}

void DecodeRole::OnTick(Time now) {
  BoundReceiving();
  handoffs_.OnTime(now);
  Act();
}

// Busy-polls for `duration`, because SEAL is due and then a sequence starts to decode. Zero ends
// the busy-poll.
void DecodeRole::BusyPollForSeal(Duration duration) {
  worker_.loop().BusyPollFor(duration);
  worker_.engine().BusyPollFor(duration);
}

void DecodeRole::BoundReceiving() {
  const bool computes = worker_.engine().Stats().running > 0;
  if (rate_while_computing_ == 0 || computes == is_bounded_) return;
  is_bounded_ = computes;
  receiver_->SetReceiveRate(computes ? rate_while_computing_ : 0);
}

// ---- actions

void DecodeRole::Act() {
  for (const DecodeAction& action : handoffs_.TakeActions()) {
    std::visit([this](const auto& each) { Do(each); }, action);
  }
}

void DecodeRole::Do(const GrantOffer& action) {
  const auto& [session, epoch] = action.session;
  const KvReservation& reservation = action.reservation;
  BoundReceiving();  // a sender that paces takes the rate from its grant
  receiver_->Grant(session,
                   epoch,
                   static_cast<uint32_t>(reservation.cached_blocks),
                   reservation.blocks,
                   reservation.state);
}

void DecodeRole::Do(const RefuseOffer& action) {
  const auto& [session, epoch] = action.session;
  receiver_->Refuse(session, epoch, action.reason);
}

void DecodeRole::Do(const AbortSession& action) {
  const auto& [session, epoch] = action.session;
  receiver_->Abort(session, epoch, action.reason);
}

void DecodeRole::Do(const ActivateRequest& action) {
  const auto& [id, epoch] = action.request;
  worker_.engine().Activate(id, epoch, action.first_tokens);
}

}  // namespace baton
