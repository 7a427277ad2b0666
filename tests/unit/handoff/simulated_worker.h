#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/cluster/commands.h"
#include "common/cluster/reports.h"
#include "decode_worker/decode_handoffs.h"
#include "prefill_worker/prefill_handoffs.h"
#include "tests/unit/handoff/event_queue.h"
#include "tests/unit/handoff/simulated_transfer.h"

namespace baton {

// The true results of the model, so that every worker computes the same.
TokenId FirstToken(RequestId request, int32_t sample);
// Whether the first token ends every sample.
bool EndsAtOnce(RequestId request);

struct WorkerFaults {
  double unreachable = 0;  // a dial fails
  double silent_dial = 0;  // a dial has no result
  double no_room = 0;      // a reservation fails
  double failed_step = 0;  // an engine step fails
};

// A worker process in a simulation: the production machines of both roles, and models of what
// surrounds them: the engine, the request book and the streams. Checks what the machines do with
// leases and commits.
class SimulatedWorker final {
 public:
  using Report = std::function<void(WorkerReport)>;

  SimulatedWorker(size_t index,
                  const WorkerFaults& faults,
                  EventQueue& events,
                  SimulatedTransfer& transfer,
                  Report report);

  // Commands of the router, in order; they arrive later.
  void Send(const WorkerCommand& command);
  void LoseRouter();
  void Leave();
  // The same for the callbacks of KvSender and KvReceiver.
  void Granted(const SessionKey& session);
  void Refused(const SessionKey& session, const Status& status);
  void Finished(const SessionKey& session, const Status& status);
  void Offered(const SessionKey& session, uint32_t total_tokens);
  void Withdrawn(const SessionKey& session, const Status& status);
  void Committed(const SessionKey& session, const std::vector<SampledToken>& first_tokens);
  void Released(const SessionKey& session, const Status& status);

  // What the worker still holds, or empty.
  std::string Leftovers() const;

 private:
  struct BookEntry {
    RequestKind kind;
    bool end_reported = false;
  };
  struct EngineRequest {
    Request request;
    bool begun = false;
    bool ended = false;
    bool leased = false;
  };

  // Runs `event` later, unless the process has ended by then.
  void Later(Duration delay, std::function<void()> event);
  std::function<void()> WhileAlive(std::function<void()> event) const;
  void Tick();

  void Do(const DispatchCommand& dispatch);
  void Do(const RedirectCommand& redirect);
  void Do(const CancelCommand& cancel);
  template <class OtherCommand>
  void Do(const OtherCommand&) {}
  void Fail(const RequestKey& key, const Status& status);

  // The engine. Its events reach the worker's thread in order.
  void Submit(const Request& request);
  void Begin(const RequestKey& key);
  void Compute(const RequestKey& key, uint32_t index);
  void SampleFirstTokens(const RequestKey& key);
  void Reserve(const RequestKey& key);
  void EndInEngine(const RequestKey& key, const Status& status);
  void CancelInEngine(const RequestKey& key);
  void DeliverEnd(const RequestKey& key, const Status& status);

  void Act();
  void Act(const ConnectPeer& action);
  void Act(const OfferKv& action) { transfer_.Offer(index_, action.offer); }
  void Act(const SendBlocks& action);
  void Act(const SealKv& action) { transfer_.Seal(action.session, action.first_tokens); }
  void Act(const GrantOffer& action);
  void Act(const RefuseOffer& action) { transfer_.Refuse(action.session, action.reason); }
  void Act(const ActivateRequest& action);
  void Act(const StartRequest& action);
  void Act(const ReportHandoff& action);
  void Act(const ReportFailure& action) { Fail(action.request, action.status); }
  void Act(const DropRequest& action);
  void Act(const ReleaseKv& action);

  const size_t index_;
  const WorkerFaults faults_;
  EventQueue& events_;
  SimulatedTransfer& transfer_;
  const Report report_;
  PrefillHandoffs prefill_;
  DecodeHandoffs decode_;
  std::map<RequestKey, BookEntry> book_;
  std::map<RequestKey, EngineRequest> engine_;
  OrderedChannel from_router_;
  OrderedChannel from_engine_;
  OrderedChannel from_transfer_;
  bool leaving_ = false;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace baton
