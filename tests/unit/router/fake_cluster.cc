#include "tests/unit/router/fake_cluster.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace baton::router {
namespace {

constexpr Duration kMs = std::chrono::milliseconds(1);
constexpr Duration kHeartbeat = std::chrono::milliseconds(50);

uint64_t Mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b * 0xC2B2AE3D27D4EB4Fu + c * 0x165667B19E3779F9u;
  x ^= x >> 31;
  return x * 0x94D049BB133111EBu >> 16;
}

}  // namespace

TokenId TrueToken(RequestId id, int32_t sample, int32_t index) {
  return static_cast<TokenId>(Mix(id.value(), sample, index) % 50'000);
}

int32_t TrueLength(RequestId id, int32_t max_tokens, int32_t sample) {
  return 1 + static_cast<int32_t>(Mix(id.value(), sample, 1 << 20) % max_tokens);
}

FinishReason TrueFinish(RequestId id, int32_t max_tokens, int32_t sample, int32_t index) {
  if (index + 1 < TrueLength(id, max_tokens, sample)) return FinishReason::kNone;
  return index + 1 == max_tokens ? FinishReason::kLength : FinishReason::kStop;
}

FakeCluster::FakeCluster(const CoreOptions& options, const Chaos& chaos, uint64_t seed)
    : options_(options),
      chaos_(chaos),
      random_(seed),
      core_(std::make_unique<RouterCore>(options_)) {}

bool FakeCluster::Happens(double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random_) < probability;
}

Duration FakeCluster::Delay() {
  return kMs * static_cast<int>(random_() % (chaos_.max_delay_ms + 1));
}

void FakeCluster::AddWorker(const std::string& name, bool prefill, bool decode, int32_t blocks) {
  auto worker = std::make_unique<Worker>();
  worker->name = name;
  worker->prefill = prefill;
  worker->decode = decode;
  worker->blocks = blocks;
  workers_.push_back(std::move(worker));
  Join(*workers_.back());
}

void FakeCluster::Join(Worker& worker) {
  WorkerInfo info;
  info.id = WorkerId(worker.name);
  if (!std::exchange(worker.same_life, false)) worker.boot = ++boots_;
  info.boot = BootId(worker.boot);
  info.can_prefill = worker.prefill;
  info.can_decode = worker.decode;
  info.block_tokens = 16;
  info.blocks = worker.blocks;
  info.max_sequences = 64;
  info.context_length = 8192;
  info.vocabulary = 50'000;
  info.max_step_tokens = 512;
  info.deterministic = !nondeterministic_.contains(worker.name);
  worker.alive = true;
  worker.jobs.clear();
  worker.sessions.clear();
  worker.met.clear();
  worker.early_kv.clear();
  worker.noticed.clear();
  worker.inbox.clear();
  worker.outbox.clear();
  worker.next_heartbeat = now_;
  worker.slot = kNoWorker;
  const auto slot = core_->Join(info, now_);
  ASSERT_TRUE(slot.ok()) << slot.status();
  worker.slot = *slot;
  CarryOut();
}

const std::set<std::string>& FakeCluster::MetBy(const std::string& name) const {
  return (*std::ranges::find(workers_, name, [](const auto& worker) { return worker->name; }))->met;
}

void FakeCluster::Submit(std::shared_ptr<const RequestSpec> spec) {
  Client& client = clients_[spec->id];
  client.spec = spec;
  client.tokens.resize(spec->samples);
  client.finish.resize(spec->samples, FinishReason::kNone);
  core_->Submit(std::move(spec), now_);
  CarryOut();
}

void FakeCluster::CarryOut() {
  core_->TakeActions(actions_);
  for (auto& [slot, command] : actions_.commands) Send(slot, std::move(command));
  for (auto& [id, event] : actions_.events) Deliver(id, std::move(event));
  for (const ReplayResult& result : actions_.replays) replays_.push_back(result);
}

void FakeCluster::Send(WorkerSlot slot, WorkerCommand command) {
  const auto found =
      std::ranges::find(workers_, slot, [](const auto& worker) { return worker->slot; });
  if (found == workers_.end() || !(*found)->alive) return;
  Worker& worker = **found;
  if (const auto* connect = std::get_if<ConnectCommand>(&command)) {
    worker.met.insert(connect->peer.id.value());
    return;
  }
  worker.in_arrives = std::max(worker.in_arrives, now_ + Delay());
  worker.inbox.emplace_back(worker.in_arrives, std::move(command));
}

void FakeCluster::Deliver(RequestId id, ClientEvent event) {
  Client& client = clients_.at(id);
  ASSERT_FALSE(client.outcome.has_value()) << "an event after the outcome";
  if (auto* outcome = std::get_if<Outcome>(&event)) {
    client.outcome = std::move(*outcome);
    return;
  }
  const auto& output = std::get<OutputToken>(event);
  ASSERT_EQ(client.finish[output.sample], FinishReason::kNone) << "a token after the end";
  if (output.token.has_value()) client.tokens[output.sample].push_back(output.token->token);
  client.finish[output.sample] = output.finish;
}

void FakeCluster::Report(Worker& worker, WorkerReport report) {
  worker.out_arrives = std::max(worker.out_arrives, now_ + Delay());
  if (Happens(chaos_.duplicate)) worker.outbox.emplace_back(worker.out_arrives, report);
  worker.outbox.emplace_back(worker.out_arrives, std::move(report));
}

void FakeCluster::Kill(const std::string& name, int down_ms) {
  for (auto& worker : workers_) {
    if (worker->name != name || !worker->alive) continue;
    worker->alive = false;
    worker->restart_at = now_ + kMs * down_ms;
    core_->Leave(worker->slot, now_);
    CarryOut();
    worker->slot = kNoWorker;
  }
}

void FakeCluster::CutStream(const std::string& name, int down_ms) {
  for (auto& worker : workers_) {
    if (worker->name == name && worker->alive) worker->same_life = true;
  }
  Kill(name, down_ms);
}

void FakeCluster::Stall(const std::string& name, int ms) {
  for (auto& worker : workers_) {
    if (worker->name == name) worker->stalled_until = now_ + kMs * ms;
  }
}

void FakeCluster::Step() {
  now_ += kMs;
  for (auto& worker : workers_) {
    if (!worker->alive) {
      if (now_ >= worker->restart_at) Join(*worker);
      continue;
    }
    if (Happens(chaos_.crash)) {
      Kill(worker->name);
      continue;
    }
    if (now_ < worker->stalled_until) continue;
    if (Happens(chaos_.stall)) Stall(worker->name, static_cast<int>(random_() % 800));
    Work(*worker);
  }
  for (size_t i = 0; i < fabric_.size();) {
    if (fabric_[i].arrives > now_) {
      ++i;
      continue;
    }
    const Kv kv = fabric_[i];
    fabric_.erase(fabric_.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto& worker : workers_) {
      if (worker->alive && worker->boot == kv.boot) Arrive(*worker, kv);
    }
  }
  if (core_->next_wake() <= now_) Tick();
}

void FakeCluster::Work(Worker& worker) {
  while (!worker.inbox.empty() && worker.inbox.front().first <= now_) {
    const WorkerCommand command = std::move(worker.inbox.front().second);
    worker.inbox.pop_front();
    Obey(worker, command);
  }
  if (RunsDeadly(worker)) {
    ++deaths_;
    return Kill(worker.name);
  }
  if (poison_.has_value()) FailStep(worker);
  WorkerReport report;
  for (auto it = worker.jobs.begin(); it != worker.jobs.end();) {
    Job& job = it->second;
    bool over = now_ >= job.cancelled_at;
    if (over && !job.parked) {
      const auto& [id, epoch] = it->first;
      const Status why(StatusCode::kCancelled, "the request was cancelled");
      report.failed.push_back({id, epoch, why, false});
    } else if (job.running && --job.wait_ms <= 0) {
      job.wait_ms = 1 + static_cast<int32_t>(random_() % 3);
      Generate(worker, it->first, job, report);
      over = !job.running && !job.parked;
    }
    it = over ? worker.jobs.erase(it) : std::next(it);
  }
  while (!worker.noticed.empty() && worker.noticed.front().first <= now_) {
    Report(worker, std::move(worker.noticed.front().second));
    worker.noticed.pop_front();
  }
  if (now_ >= worker.next_heartbeat) {
    worker.next_heartbeat = now_ + kHeartbeat;
    report.load.emplace();
    report.load->engine.running = static_cast<int32_t>(worker.jobs.size());
    report.load->engine.blocks_free = worker.blocks - 10 * static_cast<int32_t>(worker.jobs.size());
    report.load->engine.step_ms_per_token = 0.1;
    report.load->engine.step_ms_per_prompt_token = 0.1;
  }
  if (report.load.has_value() || !report.tokens.empty() || !report.finished.empty() ||
      !report.failed.empty()) {
    Report(worker, std::move(report));
  }
  while (worker.alive && !worker.outbox.empty() && worker.outbox.front().first <= now_) {
    const WorkerReport sent = std::move(worker.outbox.front().second);
    worker.outbox.pop_front();
    core_->OnReport(worker.slot, sent, now_);
    CarryOut();
  }
}

void FakeCluster::Fail(Worker& worker, const Key& key, const Status& status, bool retryable) {
  WorkerReport report;
  report.failed.push_back({key.first, key.second, status, retryable});
  Report(worker, std::move(report));
}

// Fails the poisoned request and the requests in the same step.
void FakeCluster::FailStep(Worker& worker) {
  const bool fails = std::ranges::any_of(worker.jobs, [&](const auto& entry) {
    const Job& job = entry.second;
    return entry.first.first == *poison_ && job.running && job.wait_ms <= 1;
  });
  for (auto it = worker.jobs.begin(); fails && it != worker.jobs.end();) {
    const bool hit = it->second.running && it->second.wait_ms <= 5;
    if (hit) Fail(worker, it->first, Status(StatusCode::kInternal, "the step failed"), true);
    it = hit ? worker.jobs.erase(it) : std::next(it);
  }
}

bool FakeCluster::RunsDeadly(const Worker& worker) const {
  return deadly_.has_value() && std::ranges::any_of(worker.jobs, [&](const auto& entry) {
           const Job& job = entry.second;
           const bool spared =
               deadly_->second && job.dispatch.request.kind == RequestKind::kPrefill;
           return entry.first.first == deadly_->first && !spared && job.running && job.wait_ms <= 1;
         });
}

bool FakeCluster::Accepts(Worker& worker, const DispatchCommand& dispatch) {
  const Request& prompt = dispatch.request;
  if (prompt.kind == RequestKind::kPrefill && prompt.pinned) ++pinned_prompts_;
  const Key key{dispatch.request.id, dispatch.request.epoch};
  if (unable_.contains(worker.name) && dispatch.request.kind != RequestKind::kPrefill) {
    Fail(worker, key, Status(StatusCode::kOutOfRange, "it needs 9 blocks; there are 4"), false);
  } else if (broken_.contains(worker.name) && dispatch.request.kind != RequestKind::kDecode) {
    Fail(worker, key, Status(StatusCode::kInternal, "the step failed"), true);
  } else if (Happens(chaos_.fail_request)) {
    const bool cancelled = chaos_.request_code == StatusCode::kCancelled;
    Fail(worker, key, Status(chaos_.request_code, "full"), !cancelled);
  } else {
    return true;
  }
  return false;
}

void FakeCluster::Obey(Worker& worker, const WorkerCommand& command) {
  if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
    const Key key{dispatch->request.id, dispatch->request.epoch};
    ++kinds_[static_cast<size_t>(dispatch->request.kind)];
    if (!Accepts(worker, *dispatch)) return;
    Job job;
    job.dispatch = *dispatch;
    const Request& request = dispatch->request;
    const std::span<const TokenId> resumed =
        std::span(request.tokens).subspan(static_cast<size_t>(request.prompt_length));
    job.next.assign(request.samples, static_cast<int32_t>(resumed.size()));
    job.running = dispatch->request.kind != RequestKind::kDecode;
    job.wait_ms = 1 + static_cast<int32_t>(random_() % 10);
    for (size_t i = 0; i < resumed.size(); ++i) {
      ASSERT_EQ(resumed[i], TrueToken(key.first, request.first_sample, i));
    }
    // A cancel ends a job late. Until then a second dispatch with the same key is a repetition.
    if (!worker.jobs.emplace(key, std::move(job)).second) return;
    if (dispatch->request.kind != RequestKind::kDecode) return;
    worker.sessions[dispatch->session] = key;
    const auto early = worker.early_kv.extract(dispatch->session);
    if (!early.empty()) Arrive(worker, early.mapped());
  } else if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
    const auto it = worker.jobs.find({cancel->id, cancel->epoch});
    if (it == worker.jobs.end() || it->second.cancelled_at != kNever) return;
    worker.sessions.erase(it->second.dispatch.session);
    const int late = it->second.parked ? 0 : 1 + static_cast<int>(random_() % 150);
    it->second.cancelled_at = now_ + kMs * late;
  } else if (const auto* stop = std::get_if<StopSampleCommand>(&command)) {
    const auto it = worker.jobs.find({stop->id, stop->epoch});
    if (it != worker.jobs.end()) it->second.stopped.insert(stop->sample);
  } else if (const auto* redirect = std::get_if<RedirectCommand>(&command)) {
    Redirect(worker, *redirect);
  }
}

// A replay has an id of its own, and the seed of its origin.
RequestId FakeCluster::OriginOf(const Request& request) {
  return request.sampling.seed == 0 ? request.id : RequestId(request.sampling.seed);
}

// The length of the output depends on the max_tokens that the client set.
int32_t FakeCluster::LimitOf(const Request& request) const {
  return clients_.at(OriginOf(request)).spec->max_tokens;
}

// Reports one token. Returns whether the sample continues after it.
bool FakeCluster::Emit(const Worker& worker,
                       const Job& job,
                       int32_t sample,
                       int32_t index,
                       bool first,
                       WorkerReport& report) {
  const Request& request = job.dispatch.request;
  TokenOutput token;
  token.id = request.id;
  token.epoch = request.epoch;
  token.sample = sample;
  token.index = index;
  const RequestId origin = OriginOf(request);
  token.token.token = TrueToken(origin, sample, index);
  if (wrong_.contains({worker.name, index})) token.token.token = WrongToken(token.token.token);
  token.finish = TrueFinish(origin, LimitOf(request), sample, index);
  const bool at_limit = index + 1 >= request.max_tokens;
  if (token.finish == FinishReason::kNone && at_limit) token.finish = FinishReason::kLength;
  const bool goes_on = token.finish == FinishReason::kNone;
  if (first && goes_on) token.finish = FinishReason::kHandedOff;
  report.tokens.push_back(token);
  return goes_on;
}

void FakeCluster::Generate(Worker& worker, const Key& key, Job& job, WorkerReport& report) {
  const Request& request = job.dispatch.request;
  const bool prefill = request.kind == RequestKind::kPrefill;
  bool open = false;
  for (int32_t i = 0; i < request.samples; ++i) {
    const int32_t sample = request.first_sample + i;
    const int32_t length = TrueLength(OriginOf(request), LimitOf(request), sample);
    if (job.next[i] >= std::min(length, request.max_tokens) || job.stopped.contains(sample))
      continue;
    ++made_[{request.id, sample}];
    open |= Emit(worker, job, sample, job.next[i]++, prefill, report);
  }
  if (open && !prefill) return;
  job.running = false;
  report.finished.push_back({key.first, key.second, {kMs, 2 * kMs, 3}});
  if (!prefill || job.cancelled_at != kNever) return;
  if (open) return Handoff(worker, job);
  HandoffReport nothing;
  nothing.id = key.first;
  nothing.epoch = key.second;
  nothing.outcome = HandoffReport::Outcome::kNotNeeded;
  report.handoffs.push_back(nothing);
  SendKv(job, true);
}

bool FakeCluster::RunUntilDone(int limit_ms) {
  const auto done = [&] {
    return std::all_of(clients_.begin(), clients_.end(), [](const auto& item) {
      return item.second.outcome.has_value();
    });
  };
  for (int i = 0; i < limit_ms; ++i) {
    if (done()) return true;
    Step();
  }
  return done();
}

void FakeCluster::Settle() {
  chaos_ = {};
  for (int i = 0; i < 3000; ++i) Step();
}

size_t FakeCluster::WorkLeft() const {
  size_t left = 0;
  for (const auto& worker : workers_) left += worker->jobs.size();
  return left;
}

bool FakeCluster::Has(const std::string& name, RequestId id) const {
  const auto worker =
      std::ranges::find(workers_, name, [](const auto& known) { return known->name; });
  return (*worker)->alive && std::ranges::any_of((*worker)->jobs, [&](const auto& entry) {
           return entry.first.first == id && entry.second.cancelled_at == kNever;
         });
}

int FakeCluster::tokens_made(RequestId id, int32_t sample) const {
  const auto it = made_.find({id, sample});
  return it == made_.end() ? 0 : it->second;
}

int64_t FakeCluster::bookings() const {
  int64_t sum = 0;
  for (const WorkerSlot slot : core_->workers().slots()) {
    sum += static_cast<int64_t>(core_->workers().bookings(slot));
  }
  return sum;
}

}  // namespace baton::router
