// The hand-offs of the fake workers: refusals, failures and the KV under way.
#include "tests/unit/router/fake_cluster.h"

namespace baton::router {

void FakeCluster::Redirect(Worker& worker, const RedirectCommand& redirect) {
  const Key key{redirect.id, redirect.epoch};
  const auto it = worker.jobs.find(key);
  if (it == worker.jobs.end() || !it->second.parked) {
    const Status gone(StatusCode::kNotFound, "no refused hand-off waits for it");
    return Fail(worker, key, gone, true);
  }
  it->second.parked = false;
  it->second.dispatch.session = redirect.session;
  it->second.dispatch.peer = redirect.peer;
  Handoff(worker, it->second);
  if (!it->second.parked) worker.jobs.erase(it);
}

const FakeCluster::Cut* FakeCluster::FindCut(const Worker& worker, const std::string& peer) const {
  const auto found = severed_.find({worker.name, peer});
  return found != severed_.end() && now_ < found->second.until ? &found->second : nullptr;
}

Status FakeCluster::WhyRefused(const Worker& worker, const std::string& peer) {
  if (const Cut* cut = FindCut(worker, peer); cut != nullptr && !cut->only_data) {
    return MakeStatus(
        StatusCode::kUnavailable, "decode worker '{}' at fake:1 cannot be reached", peer);
  }
  const auto full = full_until_.find(peer);
  if ((full != full_until_.end() && now_ < full->second) || Happens(chaos_.full)) {
    return Status(StatusCode::kResourceExhausted, "no blocks are free");
  }
  if (unable_.contains(peer)) return Status(StatusCode::kOutOfRange, "it needs 9 blocks");
  if (Happens(chaos_.refuse)) return Status(StatusCode::kUnavailable, "the stream broke");
  return OkStatus();
}

Status FakeCluster::WhyFailed(const Worker& worker, const std::string& peer) {
  if (const Cut* cut = FindCut(worker, peer); cut != nullptr && cut->only_data) {
    return Status(StatusCode::kUnavailable, "no data channel");
  }
  if (Happens(chaos_.fail_handoff)) return Status(StatusCode::kUnavailable, "the stream broke");
  return OkStatus();
}

void FakeCluster::Handoff(Worker& worker, Job& job) {
  HandoffReport report;
  report.id = job.dispatch.request.id;
  report.epoch = job.dispatch.request.epoch;
  const std::string& peer = job.dispatch.peer.id.value();
  ++handoffs_[{worker.name, peer}];
  report.status = WhyRefused(worker, peer);
  const bool refused = !report.status.ok();
  if (!refused) report.status = WhyFailed(worker, peer);
  if (!report.status.ok()) {
    job.parked = refused;
    report.outcome = refused ? HandoffReport::Outcome::kRefused : HandoffReport::Outcome::kFailed;
    const Cut* cut = FindCut(worker, peer);
    const Time noticed = now_ + (cut == nullptr ? Duration{} : cut->noticed_after);
    worker.noticed.emplace_back(noticed, WorkerReport());
    return worker.noticed.back().second.handoffs.push_back(report);
  }
  // The sender reports a commit independently of the receiver, which may still fail.
  report.outcome = HandoffReport::Outcome::kCommitted;
  report.bytes = 1 << 20;
  report.bytes_per_second = 1e9;
  report.transport = "fake";
  WorkerReport told;
  told.handoffs.push_back(report);
  Report(worker, std::move(told));
  SendKv(job, false);
}

void FakeCluster::SendKv(const Job& job, bool nothing) {
  fabric_.push_back({now_ + Delay(),
                     job.dispatch.peer.id.value(),
                     job.dispatch.peer.boot.value(),
                     job.dispatch.session,
                     job.next,
                     nothing});
}

void FakeCluster::Arrive(Worker& worker, const Kv& kv) {
  const auto it = worker.sessions.find(kv.session);
  if (it == worker.sessions.end()) {
    worker.early_kv[kv.session] = kv;
    return;
  }
  const auto job = worker.jobs.find(it->second);
  if (job == worker.jobs.end() || job->second.running) return;
  HandoffReport report;
  report.id = job->first.first;
  report.epoch = job->first.second;
  report.outcome =
      kv.nothing ? HandoffReport::Outcome::kNotNeeded : HandoffReport::Outcome::kCommitted;
  job->second.next = kv.next;
  job->second.running = true;
  WorkerReport message;
  message.handoffs.push_back(report);
  const Key key = job->first;
  const bool fails = !kv.nothing && broken_.contains(worker.name);
  if (kv.nothing || fails) worker.jobs.erase(job);
  Report(worker, std::move(message));
  if (fails) Fail(worker, key, Status(StatusCode::kInternal, "the step failed"), true);
}

}  // namespace baton::router
