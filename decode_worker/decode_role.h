#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/rpc/rpc_server.h"
#include "common/worker/handoff_output.h"
#include "common/worker/worker.h"
#include "common/worker/worker_role.h"
#include "decode_worker/decode_handoffs.h"
#include "decode_worker/kv_control_service.h"
#include "kvtransfer/receiver.h"

namespace baton {

struct DecodeOptions {
  std::string listen = "127.0.0.1:0";  // "host:port" of KvControl
  DecodeHandoffs::Limits handoffs;
  ConnectionLimits limits;
  // KvReceiver::SetReceiveRate while the engine computes; at other times there is no bound. 0: the
  // rate of the transfer's options always holds.
  uint64_t receive_rate_while_computing = 0;
};

// Receives the KV of prompts from prefill workers and continues with decode. The router's dispatch
// and the prefill worker's OFFER arrive in any order and are matched by session id. The engine
// reserves blocks and reports which of them its prefix cache holds; then the offer is granted. When
// all KV has arrived and was verified, the request joins the running batch.
//
// DecodeHandoffs decides; the role passes events to it and carries out its actions with the engine
// and the receiver. Used on the worker's thread.
class DecodeRole final : public WorkerRole, private KvReceiverListener {
 public:
  // Listens for KvControl and for KV data. Errors: those of KvReceiver::Create and
  // RpcServer::Start. `worker` outlives the role.
  static StatusOr<std::unique_ptr<DecodeRole>> Create(Worker& worker,
                                                      KvTransferOptions transfer,
                                                      const DecodeOptions& options);

  // "host:port" of KvControl, with the port that was bound.
  const std::string& kv_address() const { return server_->address(); }

  Status OnDispatch(RouterKey router, DispatchCommand dispatch) override;
  void OnRedirect(RouterKey, const RedirectCommand&) override {}
  void OnCancel(RouterKey router, RequestId id, Epoch epoch) override;
  void OnRouterLost(RouterKey router) override;
  void OnLeaving(const std::string& reason) override;
  void OnPromptStarted(RequestId, Epoch) override {}
  void OnKvLayers(const KvChunk&, int32_t) override {}
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation& reservation) override;
  void OnToken(const TokenOutput&) override {}
  bool OnEnded(RequestId id, Epoch epoch, const Status& status) override;
  void OnTick(Time now) override;
  size_t open_handoffs() const override { return handoffs_.size(); }
  const std::map<WorkerId, PeerTraffic>& traffic() const override { return output_.traffic(); }
  KvTransferStats transfers() const override { return receiver_->Stats(); }
  void Stop() override;

 private:
  DecodeRole(Worker& worker, const DecodeOptions& options)
      : worker_(worker),
        rate_while_computing_(options.receive_rate_while_computing),
        handoffs_(options.handoffs),
        output_(worker) {}

  // KvReceiverListener, on the receiver's thread.
  void OnOffer(const WorkerId& peer,
               SessionId session,
               Epoch epoch,
               const struct Offer& offer) override;
  void OnWithdrawn(SessionId session, Epoch epoch, const Status& status) override;
  void OnSealDue(Duration within) override { BusyPollForSeal(within); }
  void OnCommitted(SessionId session,
                   Epoch epoch,
                   const std::string& payload,
                   const TransferStats& stats) override;
  void OnReleased(SessionId session, Epoch epoch, const Status& status) override;

  void BusyPollForSeal(Duration duration);
  // Applies receive_rate_while_computing.
  void BoundReceiving();
  void Act();
  void Do(const GrantOffer& action);
  void Do(const RefuseOffer& action);
  void Do(const AbortSession& action);
  void Do(const ActivateRequest& action);
  template <class SharedAction>
  void Do(const SharedAction& action) {
    output_.Do(action);
  }

  Worker& worker_;
  const uint64_t rate_while_computing_;
  bool is_bounded_ = false;
  DecodeHandoffs handoffs_;
  HandoffOutput output_;
  std::unique_ptr<KvReceiver> receiver_;
  std::unique_ptr<KvControlService> service_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace baton
