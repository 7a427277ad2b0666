#include "prefill_worker/prefill_role.h"

#include <utility>
#include <variant>
#include <vector>

#include "common/log/log.h"
#include "prefill_worker/handoff_patience.h"

namespace baton {
namespace {

const Logger kLog("prefill");

}  // namespace

StatusOr<std::unique_ptr<PrefillRole>> PrefillRole::Create(Worker& worker,
                                                           KvTransferOptions transfer,
                                                           const PrefillOptions& options) {
  std::unique_ptr<PrefillRole> role(new PrefillRole(worker, options));
  BATON_ASSIGN_OR_RETURN(role->sender_, KvSender::Create(std::move(transfer), *role));
  role->peers_ =
      std::make_unique<DecodePeers>(*role->sender_,
                                    worker.loop(),
                                    worker.clock(),
                                    options.limits,
                                    [raw = role.get()](const WorkerId& peer, const Status& status) {
                                      raw->OnPeerSettled(peer, status);
                                    });
  return role;
}

void PrefillRole::Stop() {
  peers_->Stop();
  sender_.reset();
}

// ---- events

Status PrefillRole::OnDispatch(RouterKey router, DispatchCommand dispatch) {
  BATON_RETURN_IF_ERROR(handoffs_.OnDispatch(router, dispatch));
  worker_.engine().Submit(std::move(dispatch.request));
  Act();
  return OkStatus();
}

void PrefillRole::OnRedirect(RouterKey router, const RedirectCommand& redirect) {
  handoffs_.OnRedirect(router, redirect);
  Act();
}

void PrefillRole::OnCancel(RouterKey router, RequestId id, Epoch epoch) {
  handoffs_.OnCancel(router, {id, epoch});
  Act();
}

void PrefillRole::OnRouterLost(RouterKey router) {
  handoffs_.OnRouterLost(router);
  Act();
}

void PrefillRole::OnPeerSettled(const WorkerId& peer, const Status& status) {
  handoffs_.OnPeerSettled(peer, status, worker_.clock().Now());
  Act();
}

void PrefillRole::OnPromptStarted(RequestId id, Epoch epoch) {
  handoffs_.OnStarted({id, epoch}, worker_.clock().Now());
  Act();
}

void PrefillRole::OnKvLayers(const KvChunk& chunk, int32_t layers) {
  handoffs_.OnLayers(chunk, layers);
  Act();
}

void PrefillRole::OnKvChunk(const KvChunk& chunk) {
  handoffs_.OnChunk(chunk, worker_.clock().Now());
  Act();
}

bool PrefillRole::OnEnded(RequestId id, Epoch epoch, const Status& status) {
  worker_.loop().BusyPollFor(Duration{});
  handoffs_.OnEnded({id, epoch}, status);
  Act();
  return true;
}

void PrefillRole::OnGranted(SessionId session, Epoch epoch) {
  worker_.loop().PostInternal([this, session, epoch] {
    handoffs_.OnGranted({session, epoch});
    Act();
  });
}

void PrefillRole::OnRefused(SessionId session, Epoch epoch, const Status& status) {
  worker_.loop().PostInternal([this, session, epoch, status] {
    handoffs_.OnRefused({session, epoch}, status, worker_.clock().Now());
    Act();
  });
}

void PrefillRole::OnFinished(SessionId session,
                             Epoch epoch,
                             const Status& status,
                             const TransferStats& stats) {
  worker_.loop().PostInternal([this, session, epoch, status, stats] {
    handoffs_.OnFinished({session, epoch}, status, stats, worker_.clock().Now());
    Act();
  });
}

void PrefillRole::OnTick(Time now) {
  peers_->OnTick(now);
  handoffs_.OnTime(now);
  Act();
}

// ---- actions

void PrefillRole::Act() {
  // A peer that is connected already requests more actions.
  for (auto actions = handoffs_.TakeActions(); !actions.empty();
       actions = handoffs_.TakeActions()) {
    for (const PrefillAction& action : actions) {
      std::visit([this](const auto& each) { Do(each); }, action);
    }
  }
}

void PrefillRole::Do(const ConnectPeer& action) {
  if (peers_->Connect(action.peer)) {
    handoffs_.OnPeerSettled(action.peer.id, OkStatus(), worker_.clock().Now());
  }
}

void PrefillRole::Do(const SendBlocks& action) {
  const auto& [session, epoch] = action.session;
  if (action.layers.has_value()) {
    sender_->LayersReady(
        session, epoch, action.first_index, action.blocks, *action.layers, action.state);
  } else {
    sender_->ChunkReady(session, epoch, action.first_index, action.blocks, action.state);
  }
}

void PrefillRole::Do(const SealKv& action) {
  const auto& [session, epoch] = action.session;
  const Duration patience =
      action.pinned
          ? Duration::max()
          : HandoffPatience(worker_.engine().Stats(), action.total_tokens, action.computed);
  sender_->Seal(session, epoch, EncodeFirstTokens(action.first_tokens), patience);
}

void PrefillRole::Do(const AbortSession& action) {
  const auto& [session, epoch] = action.session;
  sender_->Abort(session, epoch, action.reason);
}

void PrefillRole::Do(const ReportHandoff& action) {
  const HandoffReport& report = action.report;
  if (report.outcome == HandoffReport::Outcome::kRefused) {
    kLog.Info(
        "request {}: decode worker {} refused: {}", report.id, action.peer, Message(report.status));
  }
  output_.Do(action);
}

}  // namespace baton
