#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/worker/worker.h"
#include "common/worker/worker_role.h"
#include "kvtransfer/sender.h"
#include "prefill_worker/decode_peers_client.h"

namespace baton {

struct PrefillOptions {
  // How long a refused hand-off waits for the router to name another decode worker.
  Duration redirect_wait = std::chrono::seconds(10);
  // The longest time for a hand-off, also when its request has a later deadline or none.
  Duration handoff_limit = std::chrono::seconds(600);
  ConnectionLimits limits;
};

// Computes prompts and hands their KV to decode workers. A request is offered to its decode worker
// as soon as it arrives. The layers of a chunk are sent as the engine finishes them. The first
// tokens are sent to the router at once, and to the decode worker with SEAL.
//
// The lease of a prompt's KV ends (Engine::ReleaseKv) when the engine has finished the request and
// the sender has reported that no peer reads the blocks any more. Used on the worker's thread.
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
  void OnKvLayers(const KvChunk& chunk, int32_t layers) override;
  void OnKvChunk(const KvChunk& chunk) override;
  void OnKvReserved(const KvReservation&) override {}
  void OnToken(const TokenOutput& token) override;
  bool OnEnded(RequestId id, Epoch epoch, const Status& status) override;
  void OnTick(Time now) override;
  size_t open_handoffs() const override { return handoffs_.size(); }
  const std::map<WorkerId, PeerTraffic>& traffic() const override { return traffic_; }
  KvTransferStats transfers() const override { return sender_->Stats(); }
  void Stop() override;

 private:
  using Key = std::pair<RequestId, Epoch>;

  enum class Phase {
    kConnecting,  // the peer is being dialled
    kOffered,     // the sender has the session
    kParked,      // refused; waits for a redirect
    kEnding,      // aborted; waits for the sender's OnFinished
    kOver,        // no peer reads the blocks
  };

  struct Handoff {
    RouterKey router;
    SessionKey session;  // its epoch is the decode worker's
    Peer peer;
    Phase phase = Phase::kConnecting;
    bool in_sender = false;  // `session` was offered, and OnFinished has not arrived
    int32_t lingering = 0;   // earlier sessions whose OnFinished has not arrived
    bool computed = false;   // the engine has finished the request
    bool leased = false;     // the engine holds a lease on the blocks until ReleaseKv
    uint32_t total_tokens = 0;
    Time deadline{};
    Time parked{};
    Time last_chunk{};
    int32_t first_sample = 0;
    std::vector<BlockId> blocks;
    std::vector<SampledToken> first_tokens;  // by sample
    bool continues = false;                  // a sample continues after its first token
    bool sealed = false;
  };

  PrefillRole(Worker& worker, const PrefillOptions& options);

  // KvSenderListener, on the sender's thread.
  // The hand-off waits only for the first token, which this thread receives from the engine.
  void OnSealDue(Duration within) override { worker_.loop().BusyPollFor(within); }
  void OnRefused(SessionId session, Epoch epoch, const Status& status) override;
  void OnFinished(SessionId session,
                  Epoch epoch,
                  const Status& status,
                  const TransferStats& stats) override;

  void OnPeerSettled(const WorkerId& peer, const Status& status);
  void Refused(const Key& key, Handoff& handoff, const Status& status);
  void Finished(SessionId session, Epoch epoch, const Status& status, const TransferStats& stats);
  void Offer(Handoff& handoff);
  void GiveUp(Handoff& handoff, const Status& reason);
  void EraseIfOver(const Key& key);

  Worker& worker_;
  const PrefillOptions options_;
  absl::flat_hash_map<Key, std::unique_ptr<Handoff>> handoffs_;
  absl::flat_hash_map<SessionKey, Key> sessions_;
  std::map<WorkerId, PeerTraffic> traffic_;
  std::unique_ptr<KvSender> sender_;
  std::unique_ptr<DecodePeers> peers_;
};

}  // namespace baton
