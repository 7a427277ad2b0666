#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/handoff/event_queue.h"
#include "tests/unit/handoff/simulated_transfer.h"
#include "tests/unit/handoff/simulated_worker.h"

namespace baton {

// The faults of a simulation; each is a probability.
struct HandoffFaults {
  TransferFaults transfer;
  WorkerFaults worker;
  double lose_dispatch = 0;  // one of the two dispatches of an attempt never arrives
  double cancel = 0;         // the user cancels a request
  double lose_cancel = 0;    // a worker does not receive the cancel
  double no_redirect = 0;    // the router does not answer a refusal
  // At each 10 ms, for each worker:
  double crash = 0;  // the process ends and restarts at once
  double break_streams = 0;
  double lose_router = 0;
  double leave = 0;
};

// Prefill and decode workers, which run the production machines of the roles, and a router that
// dispatches, redirects and cancels requests. Every run is a function of its seed.
class HandoffSimulator final : private TransferListener {
 public:
  static constexpr size_t kRequests = 12;

  HandoffSimulator(uint64_t seed, const HandoffFaults& faults);
  // Runs until every request must have ended, and checks that no worker holds anything.
  void Run();

  // The first broken invariant, or empty.
  const std::string& violation() const { return events_.violation(); }
  size_t served() const { return served_; }
  size_t committed() const { return transfer_.committed(); }
  size_t redirects() const { return redirects_; }

 private:
  static constexpr size_t kPrefillWorkers = 2;
  static constexpr size_t kWorkers = 4;

  struct Client {
    Request request;
    size_t prefill = 0;
    size_t decode = 0;
    uint64_t sessions = 0;  // so far; the last one is the present one
    Epoch decode_epoch;
    bool decode_first = false;   // the decode worker takes its blocks first
    bool prefill_holds = false;  // the prefill worker may hold blocks
    std::optional<Status> outcome;
  };

  void AddWorker(size_t index);
  void Start(RequestId id);
  void ChooseDecode(Client& client);
  void DispatchDecode(Client& client);
  DispatchCommand Dispatch(const Client& client, RequestKind kind) const;
  void Cancel(size_t worker, RequestId id, Epoch epoch);
  void End(Client& client, const Status& outcome);
  void OnReport(size_t worker, const WorkerReport& report);
  void OnHandoff(size_t worker, const HandoffReport& report);
  void Redirect(Client& client, const Status& refusal);
  bool IsPart(const Client& client, size_t worker, Epoch epoch) const;
  void EndRequestsOf(size_t worker);
  void Disturb();

  void OnGranted(size_t sender, const SessionKey& session) override;
  void OnRefused(size_t sender, const SessionKey& session, const Status& status) override;
  void OnFinished(size_t sender, const SessionKey& session, const Status& status) override;
  void OnOffer(size_t receiver, const SessionKey& session, uint32_t total_tokens) override;
  void OnWithdrawn(size_t receiver, const SessionKey& session, const Status& status) override;
  void OnCommitted(size_t receiver,
                   const SessionKey& session,
                   const std::vector<SampledToken>& first_tokens) override;
  void OnReleased(size_t receiver, const SessionKey& session, const Status& status) override;

  const HandoffFaults faults_;
  EventQueue events_;
  SimulatedTransfer transfer_;
  std::vector<OrderedChannel> to_router_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::map<RequestId, Client> clients_;
  size_t served_ = 0;
  size_t redirects_ = 0;
};

}  // namespace baton
