#include "tests/unit/handoff/pool_worker.h"

#include <utility>
#include <variant>
#include <vector>

#include "common/base/overloaded.h"

namespace baton {
namespace {

constexpr RouterKey kRouter(1);
constexpr Duration kTick = std::chrono::milliseconds(20);

Scheduler::Options SchedulerOptions(const PoolOptions& options) {
  return {.engine = options.engine,
          .limits = {.context_length = 1 << 20, .vocabulary = 1000, .max_samples = 4},
          .model_fingerprint = {}};
}

}  // namespace

PoolWorker::PoolWorker(size_t index,
                       const WorkerInfo& info,
                       const PoolOptions& options,
                       EventQueue& events,
                       SimulatedTransfer& transfer,
                       PoolWorld& world)
    : index_(index),
      info_(info),
      events_(events),
      transfer_(transfer),
      world_(world),
      cache_(options.blocks,
             16,
             true,
             options.state_blocks > 0 ? std::vector<KvWindow>{0, kStateWindow}
                                      : std::vector<KvWindow>{KvWindow()},
             options.state_blocks),
      scheduler_(SchedulerOptions(options), cache_),
      prefill_({}),
      decode_({}) {
  Tick();
}

void PoolWorker::Dispatch(const DispatchCommand& dispatch) {
  const RequestKey key(dispatch.request.id, dispatch.request.epoch);
  const bool prefill = dispatch.request.kind == RequestKind::kPrefill;
  const Status known = prefill ? prefill_.OnDispatch(kRouter, dispatch)
                               : decode_.OnDispatch(kRouter, dispatch, events_.now());
  if (!known.ok()) return events_.Violate("a request is dispatched twice");
  book_.emplace(key, dispatch.request.kind);
  scheduler_.Add(dispatch.request, events_.now());
  Act();
}

void PoolWorker::Cancel(const RequestKey& key) {
  if (book_.contains(key)) scheduler_.Cancel(key);
  prefill_.OnCancel(kRouter, key);
  decode_.OnCancel(kRouter, key);
  Act();
}

void PoolWorker::Act() {
  CarryOut();
  if (std::exchange(planned_, true)) return;
  events_.At(Duration{}, [this] { PlanStep(); });
}

void PoolWorker::CarryOut() {
  Deliver();
  for (bool more = true; more;) {
    more = false;
    const auto run = [&](auto& actions, auto abort) {
      for (const auto& action : actions) {
        more = true;
        std::visit(Overloaded{[&](const AbortSession& end) { abort(end); },
                              [this](const auto& each) { Do(each); }},
                   action);
      }
    };
    auto sending = prefill_.TakeActions();
    run(sending,
        [this](const AbortSession& end) { transfer_.AbortSender(end.session, end.reason); });
    auto receiving = decode_.TakeActions();
    run(receiving,
        [this](const AbortSession& end) { transfer_.AbortReceiver(end.session, end.reason); });
    Deliver();
  }
}

// ---- steps

void PoolWorker::PlanStep() {
  planned_ = false;
  if (!scheduler_.steps().empty()) return;
  prefill_.OnTime(events_.now());
  decode_.OnTime(events_.now());
  const StepPlan& plan = scheduler_.Plan(events_.now());
  logit_rows_ = plan.logit_rows;
  if (!plan.rows.empty()) {
    world_.Progress();
    const auto work = std::chrono::microseconds(500 + 20 * plan.tokens);
    events_.At(work + events_.Delay() / 20, [this] { EndStep(); });
  }
  CarryOut();
}

void PoolWorker::Tick() {
  Act();
  events_.At(kTick, [this] { Tick(); });
}

void PoolWorker::EndStep() {
  SampledToken token;
  token.token = 1;
  std::vector<SampledToken> sampled(static_cast<size_t>(logit_rows_), token);
  scheduler_.Commit(sampled, events_.now());
  Deliver();
  scheduler_.StoreBlocks();
  if (const Status status = scheduler_.CheckIntegrity(); !status.ok()) {
    events_.Violate(std::string(status.message()));
  }
  Act();
}

void PoolWorker::Deliver() {
  const Outcomes outcomes = scheduler_.TakeOutcomes();
  if (!outcomes.empty()) scheduler_.StoreBlocks();
  for (const RequestKey& key : outcomes.started) prefill_.OnStarted(key, events_.now());
  for (const Outcomes::Chunk& chunk : outcomes.chunks) {
    prefill_.OnChunk(chunk.view(), events_.now());
  }
  for (const KvReservation& reservation : outcomes.reservations) {
    world_.Progress();
    decode_.OnReserved(reservation);
  }
  for (const TokenOutput& token : outcomes.tokens) prefill_.OnToken(token);
  for (const Outcomes::Finish& end : outcomes.finished) DeliverEnd({end.id, end.epoch}, OkStatus());
  for (const RequestFailure& end : outcomes.failures) DeliverEnd({end.id, end.epoch}, end.status);
}

void PoolWorker::DeliverEnd(const RequestKey& key, const Status& status) {
  const auto found = book_.find(key);
  if (found == book_.end()) return events_.Violate("a request ended twice");
  const RequestKind kind = found->second;
  book_.erase(found);
  if (kind == RequestKind::kPrefill) {
    prefill_.OnEnded(key, status);
    if (!status.ok() && !IsCancelled(status)) world_.OnFailed(key.first, key.second, status);
    return;
  }
  const bool report = decode_.OnEnded(key, status);
  if (status.ok()) {
    world_.OnAnswered(key.first, key.second);
  } else if (report && !IsCancelled(status)) {
    world_.OnFailed(key.first, key.second, status);
  }
}

std::string PoolWorker::Describe() const {
  const SchedulerCounts counts = scheduler_.Counts();
  return fmt::format("{}: {} running, {} waiting, {} await KV, {} of {} blocks used",
                     info_.id,
                     counts.running,
                     counts.waiting,
                     counts.awaiting_kv,
                     cache_.total() - cache_.available(),
                     cache_.total());
}

// ---- the actions of the machines

void PoolWorker::Do(const ConnectPeer& action) {
  prefill_.OnPeerSettled(action.peer.id, OkStatus(), events_.now());
}

void PoolWorker::Do(const SendBlocks& action) {
  if (action.layers.has_value()) return;
  transfer_.BlocksReady(action.session, action.first_index, action.blocks.size());
}

void PoolWorker::Do(const ActivateRequest& action) {
  world_.Progress();
  scheduler_.Activate(action.request, action.first_tokens, events_.now());
}

void PoolWorker::Do(const ReportHandoff& action) {
  using Outcome = HandoffReport::Outcome;
  const HandoffReport& report = action.report;
  if (report.outcome == Outcome::kRefused) world_.OnRefused(report.id, report.epoch);
  if (report.outcome == Outcome::kFailed) {
    world_.OnFailed(report.id, report.epoch, report.status);
  }
}

void PoolWorker::Do(const ReportFailure& action) {
  world_.OnFailed(action.request.first, action.request.second, action.status);
}

}  // namespace baton
