#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/cluster/worker_info.h"
#include "common/engine/options.h"
#include "tests/unit/handoff/event_queue.h"
#include "tests/unit/handoff/simulated_transfer.h"

namespace baton {

class PoolWorker;

// Which worker of a hand-off takes its blocks first.
enum class PoolOrder : uint8_t {
  kOfCluster,  // as routers decide it
  kNone,       // both at once: the fault that a simulation must find
};

struct PoolOptions {
  std::string workers;       // a letter for each: p (prefill), d (decode), u (both)
  int32_t blocks = 60;       // of each arena
  int32_t state_blocks = 0;  // that the state of a sequence takes; 0: no layer has one
  EngineOptions engine;
  PoolOrder order = PoolOrder::kOfCluster;
};

// Workers with the production schedulers over small arenas, the production machines of both roles,
// and a router that sends requests to random workers. Steps and messages take random times. A run
// is a function of its seed.
class PoolWorld final : private TransferListener {
 public:
  PoolWorld(uint64_t seed, const PoolOptions& options);
  ~PoolWorld() override;

  EventQueue& events() { return events_; }
  // A request for `prompt` tokens of prompt and `output` tokens of output, sent after `delay`.
  void Add(Duration delay, int32_t prompt, int32_t output, int32_t priority);
  // Runs until every request has been answered. A request that waits while nothing runs for 5 s is
  // a violation.
  void Run(Duration most);

  const std::string& violation() const { return events_.violation(); }
  size_t served() const { return served_; }
  // How many requests that arrived later were answered before this one, counted from 1.
  size_t passed(uint64_t request) const { return clients_.at(RequestId(request)).passed; }

  // From the workers.
  void Progress() { last_progress_ = events_.now(); }
  void OnRefused(RequestId id, Epoch epoch);
  void OnFailed(RequestId id, Epoch epoch, const Status& status);
  void OnAnswered(RequestId id, Epoch epoch);

 private:
  struct Client {
    int32_t prompt = 0;
    int32_t output = 0;
    int32_t priority = 0;
    Time arrival{};
    size_t prefill = 0;
    size_t decode = 0;
    Epoch epoch;         // of the prefill worker's part
    Epoch decode_epoch;  // the highest so far
    uint64_t sessions = 0;
    bool prefill_holds = false;
    bool sent = false;
    bool done = false;
    size_t passed = 0;
  };

  void Send(RequestId id);
  void SendDecode(RequestId id, Client& client);
  void Redirect(RequestId id);
  bool DecodeFirst(const Client& client) const;
  std::vector<size_t> Able(bool prefill) const;
  void Watch();

  void OnGranted(size_t sender, const SessionKey& session) override;
  void OnRefused(size_t sender, const SessionKey& session, const Status& status) override;
  void OnFinished(size_t sender, const SessionKey& session, const Status& status) override;
  void OnOffer(size_t receiver, const SessionKey& session, uint32_t total_tokens) override;
  void OnWithdrawn(size_t receiver, const SessionKey& session, const Status& status) override;
  void OnCommitted(size_t receiver,
                   const SessionKey& session,
                   const std::vector<SampledToken>& first_tokens) override;
  void OnReleased(size_t receiver, const SessionKey& session, const Status& status) override;

  const PoolOptions options_;
  EventQueue events_;
  SimulatedTransfer transfer_;
  std::vector<std::unique_ptr<PoolWorker>> workers_;
  std::map<RequestId, Client> clients_;
  size_t served_ = 0;
  Time last_progress_{};
};

}  // namespace baton
