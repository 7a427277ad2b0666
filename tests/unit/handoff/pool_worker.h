#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "common/cluster/commands.h"
#include "common/cluster/worker_info.h"
#include "common/engine/scheduler.h"
#include "common/kvcache/kv_cache.h"
#include "decode_worker/decode_handoffs.h"
#include "prefill_worker/prefill_handoffs.h"
#include "tests/unit/handoff/pool_world.h"

namespace baton {

// A worker of PoolWorld: the production scheduler and machines of both roles, on the simulation's
// only thread. The callbacks of the transfer arrive through `handle`.
class PoolWorker final {
 public:
  PoolWorker(size_t index,
             const WorkerInfo& info,
             const PoolOptions& options,
             EventQueue& events,
             SimulatedTransfer& transfer,
             PoolWorld& world);

  const WorkerInfo& info() const { return info_; }
  PrefillHandoffs& prefill() { return prefill_; }
  DecodeHandoffs& decode() { return decode_; }
  void Dispatch(const DispatchCommand& dispatch);
  void Cancel(const RequestKey& key);
  // Carries out the actions of the machines, and plans a step if none is under way.
  void Act();
  // One line: what runs, waits and is held.
  std::string Describe() const;

 private:
  void CarryOut();
  void Tick();
  void PlanStep();
  void EndStep();
  void Deliver();
  void DeliverEnd(const RequestKey& key, const Status& status);

  void Do(const ConnectPeer& action);
  void Do(const OfferKv& action) { transfer_.Offer(index_, action.offer); }
  void Do(const SendBlocks& action);
  void Do(const SealKv& action) { transfer_.Seal(action.session, action.first_tokens); }
  void Do(const GrantOffer& action) { transfer_.Grant(action.session); }
  void Do(const RefuseOffer& action) { transfer_.Refuse(action.session, action.reason); }
  void Do(const ActivateRequest& action);
  void Do(const StartRequest& action) { scheduler_.PeerReady(action.request, events_.now()); }
  void Do(const ReportHandoff& action);
  void Do(const ReportFailure& action);
  void Do(const DropRequest& action) { scheduler_.Cancel(action.request); }
  void Do(const ReleaseKv& action) { scheduler_.ReleaseKv(action.request); }

  const size_t index_;
  const WorkerInfo info_;
  EventQueue& events_;
  SimulatedTransfer& transfer_;
  PoolWorld& world_;
  KvCache cache_;
  Scheduler scheduler_;
  PrefillHandoffs prefill_;
  DecodeHandoffs decode_;
  std::map<RequestKey, RequestKind> book_;
  bool planned_ = false;  // a call of PlanStep is due
  int32_t logit_rows_ = 0;
};

}  // namespace baton
