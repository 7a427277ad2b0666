#include "router/loop/core_loop.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/exception_border.h"
#include "common/base/thread.h"
#include "common/log/log.h"

namespace baton::router {
namespace {

constexpr size_t kDeliveryThreads = 2;
constexpr Duration kLongestWait = std::chrono::milliseconds(100);
constexpr Duration kGaugesEvery = std::chrono::milliseconds(250);

const Logger kLog("router");

void NoteRefusal(
    RouterCore& core, const WorkerId& id, const std::string& address, const Status& why, Time now) {
  if (core.Refuse(id, address, why, now)) {
    kLog.Warning("the join of worker '{}' from {} is refused: {}", id, address, Message(why));
  }
}

void LogPair(const PairChange& change, Time now) {
  if (!change.failing.has_value()) {
    return kLog.Info("hand-offs from prefill worker {} to decode worker {} succeed again",
                     change.prefill,
                     change.decode);
  }
  const FailingPair& pair = *change.failing;
  kLog.Warning(
      "hand-offs from prefill worker {} to decode worker {} fail ({} in a row): {}; other workers "
      "are preferred for {:.0f} s",
      change.prefill,
      change.decode,
      pair.failures,
      Message(pair.why),
      ToSeconds(pair.avoided_until - now));
}

void LogStall(StallWatch::Change change, const RouterCore& core) {
  if (change == StallWatch::Change::kEnded) return kLog.Info("requests run again");
  const CoreCounts counts = core.Counts();
  std::string workers;
  for (const WorkerSlot slot : core.workers().slots()) {
    const WorkerRecord& worker = core.workers().record(slot);
    const EngineLoad& engine = worker.load.engine;
    workers += fmt::format("; {} ({}): {} waiting, {} await KV, {} of {} KV blocks in use",
                           worker.info.id,
                           Name(worker.state),
                           engine.waiting,
                           engine.awaiting_kv,
                           engine.blocks_total - engine.blocks_free,
                           engine.blocks_total);
  }
  if (workers.empty()) workers = "; no worker has joined";
  kLog.Warning("{} requests wait, and nothing has run on any worker for {:.0f} s{}",
               counts.waiting + counts.running,
               ToSeconds(core.stalled()),
               workers);
}

std::string TokenText(const std::optional<TokenId>& token) {
  return token.has_value() ? fmt::format("token {}", *token) : "its end";
}

// Never logs the prompt or the text.
void LogReplay(const ReplayResult& result) {
  if (!result.mismatch.has_value()) return;
  const ReplayDifference& where = *result.mismatch;
  kLog.Warning(
      "request {}: its replay differs from its first run in sample {} at output position {}: "
      "prefill worker {} and decode worker {} gave {}; prefill worker {} and decode worker {} gave "
      "{}",
      result.request,
      where.sample,
      where.position,
      result.first.prefill,
      result.first.decode,
      TokenText(where.first),
      result.replay.prefill,
      result.replay.decode,
      TokenText(where.replay));
}

}  // namespace

CoreLoop::CoreLoop(const CoreOptions& options, const Clock& clock, RouterProbe& probe)
    : clock_(clock),
      probe_(probe),
      core_(options),
      delivery_("deliver", kDeliveryThreads),
      thread_(StartThread("router-core", [this](const std::stop_token& stop) {
        // The state after an interrupted decision is unknown. A restart of the process is better
        // than lost requests or leaked blocks.
        const auto thrown = CaughtFrom([&] { Run(stop); });
        BATON_CHECK(
            !thrown.has_value(), "router-core ends by an exception: {}", thrown.value_or(""));
      })) {}

CoreLoop::~CoreLoop() {
  thread_.request_stop();
  tasks_.Close();
  thread_.join();
}

void CoreLoop::Post(Task task) {
  tasks_.Post(std::move(task));
}

void CoreLoop::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    tasks_.Wait(std::clamp(core_.next_wake() - clock_.Now(), Duration{}, kLongestWait));
    for (const Task& task : tasks_.TakeAll()) {
      task(core_, clock_.Now());
      CarryOut();
    }
    core_.Tick(clock_.Now());
    CarryOut();
    Flush();
    PublishReady();
    SetGauges();
  }
}

void CoreLoop::PublishReady() {
  if (ready_watchers_.empty()) return;
  const Status ready = core_.Ready();
  for (ReadyWatcher& watcher : ready_watchers_) {
    if (watcher.told == ready.ok()) continue;
    watcher.told = ready.ok();
    watcher.tell(ready);
  }
}

void CoreLoop::Flush() {
  for (Mail& mail : mail_) {
    if (mail.commands.empty()) continue;
    std::vector<WorkerCommand> commands = std::exchange(mail.commands, {});
    if (mail.link != nullptr && !mail.link->Send(std::move(commands))) {
      mail.link->Drop(
          Status(StatusCode::kResourceExhausted, "the worker does not read what the router sends"));
    }
  }
  std::vector<KeyedThreads::Job> deliveries;
  for (auto& [id, events] : events_) {
    const auto it = sinks_.find(id);
    if (it == sinks_.end()) continue;
    const bool last = std::holds_alternative<Outcome>(events.back());
    deliveries.push_back({id.value(), [sink = it->second, batch = std::move(events)]() mutable {
                            sink->OnEvents(std::move(batch));
                          }});
    if (last) sinks_.erase(it);
  }
  events_.clear();
  delivery_.Post(std::move(deliveries));
}

void CoreLoop::SetGauges() {
  const Time now = clock_.Now();
  if (now < next_gauges_) return;
  next_gauges_ = now + kGaugesEvery;
  const CoreCounts counts = core_.Counts();
  RouterGauges gauges;
  gauges.running = counts.running;
  gauges.waiting = counts.waiting;
  gauges.index_entries = counts.index_entries;
  gauges.failing_pairs = static_cast<int64_t>(core_.pairs().failing().size());
  gauges.stalled_seconds = ToSeconds(core_.stalled());
  int32_t* const by_state[] = {&gauges.workers_ready,
                               &gauges.workers_suspect,
                               &gauges.workers_lost,
                               &gauges.workers_draining};
  for (const WorkerSlot slot : core_.workers().slots()) {
    ++*by_state[static_cast<size_t>(core_.workers().record(slot).state)];
  }
  probe_.SetGauges(gauges);
}

void CoreLoop::CarryOut() {
  core_.TakeActions(actions_);
  for (auto& [slot, command] : actions_.commands) {
    mail_[slot.value()].commands.push_back(std::move(command));
  }
  for (auto& [id, event] : actions_.events) {
    if (const auto* outcome = std::get_if<Outcome>(&event)) {
      probe_.OnOutcome(*outcome);
      if (!outcome->status.ok()) {
        kLog.Debug("request {}: {}", id, outcome->status.ToString());
      }
    }
    events_[id].push_back(std::move(event));
  }
  for (const PairChange& change : actions_.pair_changes) LogPair(change, clock_.Now());
  if (actions_.stall != StallWatch::Change::kNone) LogStall(actions_.stall, core_);
  for (const ReplayResult& result : actions_.replays) {
    probe_.OnReplay(result);
    LogReplay(result);
  }
}

// ---- workers

void CoreLoop::Join(WorkerInfo info,
                    std::shared_ptr<WorkerLink> link,
                    std::function<void(const StatusOr<WorkerSlot>&)> joined) {
  Post([this, info = std::move(info), link = std::move(link), joined = std::move(joined)](
           RouterCore& core, Time now) {
    const WorkerSlot old = core.workers().Find(info.id);
    const std::shared_ptr<WorkerLink> replaced =
        old == kNoWorker ? nullptr : mail_[old.value()].link;
    const StatusOr<WorkerSlot> slot = core.Join(info, now);
    joined(slot);
    if (!slot.ok()) return NoteRefusal(core, info.id, info.address, slot.status(), now);
    if (replaced != nullptr) {
      slots_.erase(replaced.get());
      replaced->Drop(Status(StatusCode::kAborted, "the worker joined again"));
    }
    if (old != kNoWorker && old != *slot) mail_[old.value()] = {};
    mail_[slot->value()].link = link;
    slots_[link.get()] = *slot;
    kLog.Info("worker {} joined from {}", info.id, info.address);
    std::lock_guard lock(mutex_);
    identity_ = core.identity();
    decode_arenas_ = core.decode_arenas();
  });
}

void CoreLoop::Refuse(const WorkerId& id, const std::string& address, const Status& why) {
  Post(
      [id, address, why](RouterCore& core, Time now) { NoteRefusal(core, id, address, why, now); });
}

void CoreLoop::Report(std::shared_ptr<WorkerLink> link, WorkerReport report) {
  Post([this, link = std::move(link), report = std::move(report)](RouterCore& core, Time now) {
    const auto it = slots_.find(link.get());
    if (it != slots_.end()) core.OnReport(it->second, report, now);
  });
}

void CoreLoop::Left(std::shared_ptr<WorkerLink> link) {
  Post([this, link = std::move(link)](RouterCore& core, Time now) {
    const auto it = slots_.find(link.get());
    if (it == slots_.end()) return;
    const WorkerSlot slot = it->second;
    slots_.erase(it);
    kLog.Info("worker {} left", core.workers().record(slot).info.id);
    core.Leave(slot, now);
    CarryOut();
    mail_[slot.value()] = {};
    std::lock_guard lock(mutex_);
    decode_arenas_ = core.decode_arenas();
  });
}

// ---- requests

void CoreLoop::Submit(std::shared_ptr<const RequestSpec> spec, std::shared_ptr<RequestSink> sink) {
  Post([this, spec = std::move(spec), sink = std::move(sink)](RouterCore& core, Time now) {
    sinks_.emplace(spec->id, sink);
    core.Submit(spec, now);
  });
}

void CoreLoop::StopSample(RequestId id, int32_t sample) {
  Post([id, sample](RouterCore& core, Time now) { core.StopSample(id, sample, now); });
}

void CoreLoop::Cancel(RequestId id, const Status& why) {
  Post([id, why](RouterCore& core, Time now) { core.Cancel(id, why, now); });
}

void CoreLoop::WatchReady(std::function<void(const Status&)> tell) {
  Post([this, tell = std::move(tell)](RouterCore&, Time) {
    ready_watchers_.push_back({tell, std::nullopt});
  });
}

std::optional<ClusterIdentity> CoreLoop::identity() const {
  std::lock_guard lock(mutex_);
  return identity_;
}

DecodeArenas CoreLoop::decode_arenas() const {
  std::lock_guard lock(mutex_);
  return decode_arenas_;
}

}  // namespace baton::router
