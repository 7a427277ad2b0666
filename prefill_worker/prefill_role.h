#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/worker/handoff_output.h"
#include "common/worker/kv_control_client.h"
#include "common/worker/worker.h"
#include "common/worker/worker_role.h"
#include "kvtransfer/sender.h"
#include "prefill_worker/prefill_handoffs.h"

namespace baton {

struct PrefillOptions {
  PrefillHandoffs::Limits handoffs;
  ConnectionLimits limits;
};

// Computes prompts and hands their KV to decode workers. A request is offered to its decode worker
// as soon as its computation begins. The layers of a chunk are sent as the engine finishes them.
// The first tokens are sent to the router at once, and to the decode worker with SEAL.
//
// PrefillHandoffs decides; the role passes events to it and carries out its actions with the
// engine, the sender and the streams to decode workers. Used on the worker's thread.
class PrefillRole final : public WorkerRole, private KvSenderListener {
 public:
  // Errors: those of KvSender::Create. `worker` outlives the role.
  static StatusOr<std::unique_ptr<PrefillRole>> Create(Worker& worker,
                                                       KvTransferOptions transfer,
                                                       const PrefillOptions& options);

  Status OnDispatch(RouterKey router, DispatchCommand dispatch) override;
  void OnRedirect(RouterKey router, const RedirectCommand& redirect) override;
  void OnCancel(RouterKey router, RequestId id, Epoch epoch) override;
  void OnRouterLost(RouterKey router) override;
  void OnPeer(const Peer& peer) override { (void)peers_->Connect(peer); }
  void OnLeaving(const std::string&) override {}
  void OnPromptStarted(RequestId id, Epoch epoch) override;
  void OnKvLayers(const KvChunk& chunk, int32_t layers) override;
  void OnKvChunk(const KvChunk& chunk) override;
  void OnKvReserved(const KvReservation&) override {}
  void OnToken(const TokenOutput& token) override { handoffs_.OnToken(token); }
  bool OnEnded(RequestId id, Epoch epoch, const Status& status) override;
  void OnTick(Time now) override;
  size_t open_handoffs() const override { return handoffs_.size(); }
  const std::map<WorkerId, PeerTraffic>& traffic() const override { return output_.traffic(); }
  KvTransferStats transfers() const override { return sender_->Stats(); }
  void Stop() override;

 private:
  PrefillRole(Worker& worker, const PrefillOptions& options)
      : worker_(worker), handoffs_(options.handoffs), output_(worker) {}

  // KvSenderListener, on the sender's thread.
  // The hand-off waits only for the first token, which this thread receives from the engine.
  void OnSealDue(Duration within) override { worker_.loop().BusyPollFor(within); }
  void OnGranted(SessionId session, Epoch epoch) override;
  void OnRefused(SessionId session, Epoch epoch, const Status& status) override;
  void OnFinished(SessionId session,
                  Epoch epoch,
                  const Status& status,
                  const TransferStats& stats) override;

  void OnPeerSettled(const WorkerId& peer, const Status& status);
  void Act();
  void Do(const ConnectPeer& action);
  void Do(const OfferKv& action) { sender_->Offer(action.offer); }
  void Do(const SendBlocks& action);
  void Do(const SealKv& action);
  void Do(const AbortSession& action);
  void Do(const ReportHandoff& action);
  template <class SharedAction>
  void Do(const SharedAction& action) {
    output_.Do(action);
  }

  Worker& worker_;
  PrefillHandoffs handoffs_;
  HandoffOutput output_;
  std::unique_ptr<KvSender> sender_;
  std::unique_ptr<DecodePeers> peers_;
};

}  // namespace baton
