#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/rpc/rpc_server.h"
#include "common/worker/worker.h"
#include "common/worker/worker_role.h"
#include "decode_worker/kv_control_service.h"
#include "kvtransfer/receiver.h"

namespace baton {

struct DecodeOptions {
  std::string listen = "127.0.0.1:0";  // "host:port" of KvControl
  // How long an offer waits for its dispatch, and a dispatch for its offer, before it is given up.
  Duration match_wait = std::chrono::seconds(10);
  size_t max_unmatched_offers = 4096;
  ConnectionLimits limits;
};

// Receives the KV of prompts from prefill workers and continues with decode. The router's dispatch
// and the prefill worker's OFFER arrive in any order and are matched by session id. The engine
// reserves blocks and reports which of them its prefix cache holds; then the offer is granted. When
// all KV has arrived and was verified, the request joins the running batch.
//
// The transfer's lease ends (Engine::ReleaseKv) once per reservation: when the KV is committed,
// when the receiver has reported that no byte can land any more, or at once if nothing was granted.
// Used on the worker's thread.
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
  void OnKvLayers(const KvChunk&, int32_t) override {}
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation& reservation) override;
  void OnToken(const TokenOutput&) override {}
  bool OnEnded(RequestId id, Epoch epoch, const Status& status) override;
  void OnTick(Time now) override;
  size_t open_handoffs() const override { return handoffs_.size(); }
  const std::map<WorkerId, PeerTraffic>& traffic() const override { return traffic_; }
  KvTransferStats transfers() const override { return receiver_->Stats(); }
  void Stop() override;

 private:
  using Key = std::pair<RequestId, Epoch>;

  // A dispatched request, until its KV is committed or the hand-off has ended.
  struct Handoff {
    RouterKey router;
    SessionKey session;
    WorkerId peer;
    int32_t samples = 1;
    uint32_t total_tokens = 0;
    Time since{};
    bool offered = false;
    bool granted = false;
    bool withdrawn = false;  // the prefill worker withdrew the offer because it is not needed
    std::optional<KvReservation> reservation;
    Status ended;  // not OK: the request has ended in the engine
  };

  // An offer whose dispatch has not arrived.
  struct Unmatched {
    Time since{};
    uint32_t total_tokens = 0;
  };

  DecodeRole(Worker& worker, const DecodeOptions& options) : worker_(worker), options_(options) {}

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

  void Offered(const SessionKey& session, uint32_t total_tokens);
  void RefuseUnmatched(const SessionKey& session);
  void Committed(const Key& key, const std::string& payload, const TransferStats& stats);
  void Released(const Key& key, const Status& status);
  void GrantIfReady(Handoff& handoff);
  void BusyPollForSeal(Duration duration);
  void Refuse(const SessionKey& session, const Status& reason);
  void GiveUp(const Key& key, const Status& reason);
  void EndNotNeeded(const Key& key);
  void Erase(const Key& key);
  void RememberRefusal(const SessionKey& session, const Status& reason);

  Worker& worker_;
  const DecodeOptions options_;
  absl::flat_hash_map<Key, std::unique_ptr<Handoff>> handoffs_;
  absl::flat_hash_map<SessionKey, Key> sessions_;
  absl::flat_hash_map<SessionKey, Unmatched> unmatched_;
  // Sessions that were given up before their offer arrived: the offer is refused with this reason.
  absl::flat_hash_map<SessionKey, Status> refusals_;
  std::deque<SessionKey> refusal_order_;
  bool leaving_ = false;
  std::map<WorkerId, PeerTraffic> traffic_;
  std::unique_ptr<KvReceiver> receiver_;
  std::unique_ptr<KvControlService> service_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace baton
