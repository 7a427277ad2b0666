#include "common/worker/worker.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/hash.h"
#include "common/engine/kv_room.h"
#include "common/kvcache/block_hash.h"
#include "common/log/log.h"
#include "common/worker/cache_group_loads.h"
#include "common/worker/owned_chunk.h"

namespace baton {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kLeaveLimit = std::chrono::seconds(1);

// Whether a drain must wait for hand-offs of `role`. Hand-offs in quarantine may never end, and the
// exit of the process is a fence for their blocks too, so a drain does not wait for them.
bool MustAwaitHandoffs(const WorkerRole* role) {
  if (role == nullptr || role->open_handoffs() == 0) return false;
  const KvTransferStats stats = role->transfers();
  return stats.quarantined == 0 || stats.offered + stats.streaming + stats.draining > 0;
}

PeerTraffic TrafficOf(const PeerTransferStats& stats) {
  return {.transport = stats.transport,
          .bytes_per_second = stats.bytes_per_second,
          .not_taken = stats.not_taken,
          .writes = stats.writes,
          .resent_blocks = stats.resent_blocks,
          .checksum_errors = stats.checksum_errors,
          .fences = stats.fences,
          .open = stats.open,
          .quarantined_blocks = stats.quarantined_blocks,
          .oldest_ms = ToMillis(stats.oldest)};
}

const Logger kLog("worker");

// Logs a warning when one request of full context length does not fit the arena: this is allowed,
// but rarely intended.
void WarnOfSmallArena(const WorkerInfo& self) {
  const int64_t tokens = int64_t{self.blocks} * self.block_tokens;
  if (tokens >= self.context_length) return;
  kLog.Warning(
      "the KV arena holds {} tokens ({} blocks of {}), less than the context length of {}: longer "
      "requests are refused or end early; raise engine.kv_memory_mib or engine.kv_blocks, or lower "
      "engine.context_length",
      tokens,
      self.blocks,
      self.block_tokens,
      self.context_length);
}

// How many blocks of tokens the longest sequence may have. Where all layers have a window, it may
// have any number: then as many as without windows.
int32_t BlocksOfOneSequence(const Executor& executor, int32_t max_step_tokens) {
  const KvLayout& layout = executor.kv_layout();
  const int32_t block_tokens = layout.block_tokens;
  const KvRoom room(layout, executor.kv_blocks(), max_step_tokens, StateBlocks(executor));
  const int64_t blocks = room.max_tokens() / block_tokens;
  const auto without_windows = executor.kv_blocks() / layout.block_groups();
  return blocks > executor.kv_blocks() ? without_windows : static_cast<int32_t>(blocks);
}

}  // namespace

StatusOr<std::unique_ptr<Worker>> Worker::Create(WorkerOptions options,
                                                 Executor& executor,
                                                 MetricsRegistry& metrics,
                                                 const Clock& clock) {
  std::unique_ptr<Worker> worker(new Worker(std::move(options), executor, metrics, clock));
  BATON_ASSIGN_OR_RETURN(
      worker->engine_,
      Engine::Create(worker->options_.engine, executor, *worker, clock, worker->options_.grammars));
  WorkerInfo& self = worker->identity_;
  self.id = worker->options_.id;
  self.boot = BootId(RandomId());
  self.model = worker->options_.model;
  self.fingerprint = executor.traits().fingerprint;
  self.shape = worker->options_.shape;
  self.tokenizer = worker->options_.tokenizer;
  self.weights = worker->options_.weights;
  self.secret_probe = SecretProbe(worker->options_.engine.hash_secret, self.boot);
  self.kv_layout = executor.kv_layout().ToString();
  self.admin_address = worker->options_.admin_address;
  self.program_version = worker->options_.program_version;
  self.deterministic = worker->options_.deterministic;
  self.block_tokens = executor.kv_layout().block_tokens;
  self.window = executor.kv_layout().window_beside_all();
  self.blocks = BlocksOfOneSequence(executor, worker->options_.engine.max_step_tokens);
  self.max_sequences = worker->options_.engine.max_sequences;
  self.max_step_tokens = worker->options_.engine.max_step_tokens;
  self.device = executor.device_name();
  self.context_length = executor.traits().context_length;
  self.vocabulary = executor.traits().vocabulary;
  WarnOfSmallArena(self);
  worker->probe_.Attach(*worker->engine_, executor);
  return worker;
}

Worker::Worker(WorkerOptions options,
               Executor& executor,
               MetricsRegistry& metrics,
               const Clock& clock)
    : options_(std::move(options)),
      executor_(executor),
      clock_(clock),
      probe_(metrics),
      loop_(clock, kTick) {}

Worker::~Worker() {
  Stop();
  probe_.Detach();
}

void Worker::SetRole(RequestKind kind,
                     std::unique_ptr<WorkerRole> role,
                     const std::string& kv_address) {
  if (kind == RequestKind::kPrefill) {
    prefill_ = std::move(role);
    identity_.can_prefill = true;
  } else {
    decode_ = std::move(role);
    identity_.can_decode = true;
    identity_.kv_address = kv_address;
    identity_.itl_target = options_.engine.itl_target;
  }
}

Status Worker::Start() {
  links_ = std::make_unique<WorkerLinkClients>(
      options_.routers,
      WorkerLinkContext{identity_, options_.limits, *this, loop_, clock_, closing_});
  loop_.Start({[this] { AfterBatch(); }, [this](Time now) { OnTick(now); }});
  engine_loop_ = std::make_unique<EngineLoop>(*engine_, "engine");
  return links_->Start();
}

Status Worker::Ready() const {
  BATON_RETURN_IF_ERROR(Failure());
  if (draining_) return Status(StatusCode::kUnavailable, "the worker is draining or drained");
  if (links_ == nullptr) return Status(StatusCode::kUnavailable, "the worker has not started");
  return links_->Ready();
}

bool Worker::Finished() const {
  std::lock_guard lock(idle_mutex_);
  return idle_ && ends_when_idle_;
}

Status Worker::Failure() const {
  std::lock_guard lock(idle_mutex_);
  return failure_;
}

bool Worker::Drain(Duration limit) {
  loop_.PostInternal([this] { BeginDrain("the worker received a signal to end"); });
  std::unique_lock lock(idle_mutex_);
  idle_changed_.wait_for(lock, limit, [this] { return idle_ || stopped_; });
  return idle_;
}

void Worker::Stop() {
  {
    std::lock_guard lock(idle_mutex_);
    if (std::exchange(stopped_, true)) return;
    idle_changed_.notify_all();
  }
  engine_loop_.reset();
  loop_.Stop();
  if (links_ != nullptr) links_->Leave(kLeaveLimit);
  if (prefill_ != nullptr) prefill_->Stop();
  if (decode_ != nullptr) decode_->Stop();
}

void Worker::Report(RouterKey router, const HandoffReport& report) {
  switch (report.outcome) {
    case HandoffReport::Outcome::kCommitted:
      probe_.HandoffCommitted(report.transfer, report.bytes, report.transport);
      break;
    case HandoffReport::Outcome::kRefused:
      probe_.HandoffRefused();
      break;
    case HandoffReport::Outcome::kFailed:
      probe_.HandoffFailed();
      break;
    case HandoffReport::Outcome::kNotNeeded:
      probe_.HandoffNotNeeded();
      break;
  }
  if (WorkerLinkClient* link = links_->Find(router)) link->Add(report);
}

void Worker::ReportFailure(RouterKey router, RequestId id, Epoch epoch, const Status& status) {
  if (WorkerLinkClient* link = links_->Find(router)) {
    link->Add(FailedReport{id, epoch, status, IsRetryable(status)});
  }
}

void Worker::Drop(RequestId id, Epoch epoch) {
  const auto found = book_.find({id, epoch});
  if (found == book_.end()) return;
  found->second.end_reported = true;
  engine_->Cancel(id, epoch);
}

void Worker::DropComplete(RequestId id, Epoch epoch) {
  const auto found = book_.find({id, epoch});
  if (found != book_.end()) found->second.complete = true;
  Drop(id, epoch);
}

void Worker::OnTokens(std::span<const TokenOutput> tokens) {
  output_.tokens.assign(tokens.begin(), tokens.end());
}

void Worker::OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) {
  output_.finished.push_back({id, epoch, times});
}

void Worker::OnOutputEnd() {
  loop_.PostInternal([this, output = std::exchange(output_, {})] {
    DeliverTokens(output.tokens);
    for (const auto& [id, epoch, times] : output.finished) DeliverEnd(id, epoch, OkStatus(), times);
  });
}

void Worker::OnFailed(const RequestFailure& failure) {
  loop_.PostInternal(
      [this, failure] { DeliverEnd(failure.id, failure.epoch, failure.status, {}); });
}

void Worker::OnPromptStarted(RequestId id, Epoch epoch) {
  loop_.PostInternal([this, id, epoch] {
    if (prefill_ != nullptr) prefill_->OnPromptStarted(id, epoch);
  });
}

void Worker::OnKvLayers(const KvChunk& chunk, int32_t layers) {
  loop_.PostInternal([this, layers, copy = OwnedChunk(chunk)] {
    if (prefill_ != nullptr) prefill_->OnKvLayers(copy.view(), layers);
  });
}

void Worker::OnKvChunk(const KvChunk& chunk) {
  loop_.PostInternal([this, copy = OwnedChunk(chunk)] {
    if (prefill_ != nullptr) prefill_->OnKvChunk(copy.view());
  });
}

void Worker::OnKvReserved(const KvReservation& reservation) {
  loop_.PostInternal([this, reservation] {
    if (decode_ != nullptr) decode_->OnKvReserved(reservation);
  });
}

void Worker::OnCacheEvent(const CacheEvent& event) {
  loop_.PostInternal([this, event] { DeliverCacheEvent(event); });
}

void Worker::OnGaveUp(const Status& status) {
  loop_.PostInternal([this, status] { Fail(status); });
}

WorkerRole* Worker::RoleOf(RequestKind kind) const {
  switch (kind) {
    case RequestKind::kPrefill:
      return prefill_.get();
    case RequestKind::kDecode:
      return decode_.get();
    case RequestKind::kServe:
      return nullptr;
  }
  return nullptr;
}

void Worker::DeliverTokens(std::span<const TokenOutput> tokens) {
  const Time now = clock_.Now();
  for (const TokenOutput& token : tokens) {
    const auto found = book_.find({token.id, token.epoch});
    if (found == book_.end()) continue;
    BookEntry& entry = found->second;
    if (entry.tokens++ == 0) entry.first_token = now;
    entry.last_token = now;
    if (WorkerLinkClient* link = links_->Find(entry.router)) link->Add(token);
    if (WorkerRole* role = RoleOf(entry.kind)) role->OnToken(token);
  }
}

void Worker::DeliverEnd(RequestId id,
                        Epoch epoch,
                        const Status& status,
                        const RequestTimes& times) {
  const auto found = book_.find({id, epoch});
  if (found == book_.end()) return;
  const BookEntry entry = found->second;
  book_.erase(found);
  probe_.RequestEnded(entry, status, times);
  if (status.ok()) {
    if (WorkerLinkClient* link = links_->Find(entry.router))
      link->Add(FinishedReport{id, epoch, times});
  }
  WorkerRole* role = RoleOf(entry.kind);
  const bool tell = role == nullptr || role->OnEnded(id, epoch, status);
  if (!status.ok() && tell && !entry.end_reported) ReportFailure(entry.router, id, epoch, status);
}

void Worker::DeliverCacheEvent(const CacheEvent& event) {
  if (event.kind == CacheEvent::Kind::kCleared) digest_ = {};
  for (const Hash128& hash : event.blocks) {
    digest_.high ^= hash.high;
    digest_.low ^= hash.low;
  }
  digest_sequence_ = event.sequence;
  links_->ForEachJoined([&](WorkerLinkClient& link) { link.Add(event); });
}

void Worker::OnDispatch(RouterKey router, DispatchCommand dispatch) {
  const Request& request = dispatch.request;
  const std::pair<RequestId, Epoch> key{request.id, request.epoch};
  const auto refuse = [&](const Status& why) { ReportFailure(router, key.first, key.second, why); };
  if (draining_) return refuse(Status(StatusCode::kUnavailable, "the worker is leaving"));
  WorkerRole* role = RoleOf(request.kind);
  if (role == nullptr && request.kind != RequestKind::kServe) {
    return refuse(InvalidArgument("dispatch: this worker cannot {}",
                                  request.kind == RequestKind::kPrefill ? "prefill" : "decode"));
  }
  BookEntry entry;
  entry.router = router;
  entry.kind = request.kind;
  entry.arrival = request.arrival;
  if (!book_.try_emplace(key, entry).second) {
    kLog.Warning("request {} of epoch {} was dispatched twice; the second dispatch is ignored",
                 request.id,
                 request.epoch.value());
    return;
  }
  if (role == nullptr) return engine_->Submit(std::move(dispatch.request));
  if (const Status status = role->OnDispatch(router, std::move(dispatch)); !status.ok()) {
    book_.erase(key);
    refuse(status);
  }
}

void Worker::OnRedirect(RouterKey router, const RedirectCommand& redirect) {
  if (prefill_ != nullptr) {
    prefill_->OnRedirect(router, redirect);
  } else {
    ReportFailure(router,
                  redirect.id,
                  redirect.epoch,
                  Status(StatusCode::kNotFound, "redirect: this worker cannot prefill"));
  }
}

void Worker::OnCancel(RouterKey router, const CancelCommand& cancel) {
  const auto found = book_.find({cancel.id, cancel.epoch});
  if (found != book_.end() && found->second.router == router) {
    found->second.complete = cancel.complete;
    engine_->Cancel(cancel.id, cancel.epoch);
  }
  if (prefill_ != nullptr) prefill_->OnCancel(router, cancel.id, cancel.epoch);
  if (decode_ != nullptr) decode_->OnCancel(router, cancel.id, cancel.epoch);
}

void Worker::OnStopSample(RouterKey router, const StopSampleCommand& stop) {
  const auto found = book_.find({stop.id, stop.epoch});
  if (found == book_.end() || found->second.router != router) return;
  engine_->StopSample(stop.id, stop.epoch, stop.sample);
}

void Worker::OnPeer(const Peer& peer) {
  if (prefill_ != nullptr) prefill_->OnPeer(peer);
}

void Worker::OnSnapshotWanted(bool clear) {
  engine_->RequestCacheSnapshot(clear);
}

void Worker::OnDrain(bool keep) {
  if (!keep) {
    std::lock_guard lock(idle_mutex_);
    ends_when_idle_ = true;
  }
  BeginDrain("a router requested the drain");
}

void Worker::OnRouterLost(RouterKey router) {
  for (const auto& [key, entry] : book_) {
    if (entry.router == router) engine_->Cancel(key.first, key.second);
  }
  if (prefill_ != nullptr) prefill_->OnRouterLost(router);
  if (decode_ != nullptr) decode_->OnRouterLost(router);
}

WorkerLoad Worker::Load() {
  WorkerLoad load;
  const EngineStats engine = engine_->Stats();
  load.engine = engine;
  load.cache_groups = CacheGroupLoads(executor_.kv_layout(), engine.blocks_by_group);
  // Routers count the blocks of tokens of one sequence.
  for (int32_t* count : {&load.engine.blocks_total,
                         &load.engine.blocks_free,
                         &load.engine.blocks_expected,
                         &load.engine.blocks_cached}) {
    *count = static_cast<int32_t>(int64_t{*count} * identity_.blocks / executor_.kv_blocks());
  }
  load.digest = digest_;
  load.digest_sequence = digest_sequence_;
  uint64_t rejected_messages = 0;
  for (const WorkerRole* role : {prefill_.get(), decode_.get()}) {
    if (role == nullptr) continue;
    for (const auto& [peer, traffic] : role->traffic()) load.peers[peer] += traffic;
    const KvTransferStats transfers = role->transfers();
    for (const auto& [peer, stats] : transfers.by_peer) load.peers[peer] += TrafficOf(stats);
    rejected_messages += transfers.rejected_messages;
  }
  probe_.SetPeers(load.peers, rejected_messages);
  load.blocks_quarantined = blocks_quarantined_;
  load.draining = draining_;
  return load;
}

void Worker::BeginDrain(const std::string& reason) {
  if (draining_.exchange(true)) return;
  kLog.Info("draining: {}; {} requests are running", reason, book_.size());
  links_->ForEachJoined([](WorkerLinkClient& link) { link.AddDrain(); });
  if (prefill_ != nullptr) prefill_->OnLeaving(reason);
  if (decode_ != nullptr) decode_->OnLeaving(reason);
}

// The engine reports the failure of every request before OnGaveUp, so the links already hold them.
void Worker::Fail(const Status& status) {
  kLog.Error("{}", Message(status));
  {
    std::lock_guard lock(idle_mutex_);
    failure_ = status;
  }
  BeginDrain(std::string(Message(status)));
  links_->Retire();
}

void Worker::AfterBatch() {
  links_->Flush();
  if (!draining_ || !book_.empty()) return;
  if (MustAwaitHandoffs(prefill_.get())) return;
  if (MustAwaitHandoffs(decode_.get())) return;
  std::lock_guard lock(idle_mutex_);
  if (std::exchange(idle_, true)) return;
  kLog.Info("drained; leaving the routers");
  links_->Retire();
  idle_changed_.notify_all();
}

void Worker::OnTick(Time now) {
  links_->OnTick(now);
  uint32_t quarantined = 0;
  for (WorkerRole* role : {prefill_.get(), decode_.get()}) {
    if (role == nullptr) continue;
    role->OnTick(now);
    quarantined += role->transfers().quarantined_blocks;
  }
  blocks_quarantined_ = static_cast<int32_t>(quarantined);
  probe_.SetQuarantined(quarantined);
  WatchForStall(now);
}

// Held requests wait for their peer, which says so itself when it is the one that is stalled.
void Worker::WatchForStall(Time now) {
  const EngineStats stats = engine_->Stats();
  const int32_t queued = stats.waiting - stats.held - stats.first_masks;
  const auto change = stall_.Observe(queued > 0, stats.running > 0, stats.steps, now);
  probe_.SetStalled(stall_.stalled());
  if (change == StallWatch::Change::kBegan) {
    kLog.Warning(
        "{} requests wait in the queue, and nothing has run for {:.0f} s: {} of {} KV blocks are "
        "in "
        "use by {} hand-offs, and {} requests await their KV; the first request in the queue waits "
        "until a hand-off ends",
        queued,
        ToSeconds(stall_.stalled()),
        stats.blocks_total - stats.blocks_free,
        stats.blocks_total,
        stats.leases,
        stats.awaiting_kv);
  } else if (change == StallWatch::Change::kEnded) {
    kLog.Info("requests run again");
  }
}

}  // namespace baton
