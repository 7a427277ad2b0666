#include "router/core/replays.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace baton::router {
namespace {

// A finished request waits this long for a time at which no client waits.
constexpr Duration kMaxWait = std::chrono::seconds(30);
// The ids of replays have this bit; the ids of clients' requests count from zero.
constexpr uint64_t kReplayBit = uint64_t{1} << 39;

std::optional<TokenId> At(const std::vector<TokenId>& tokens, size_t position) {
  return position < tokens.size() ? std::optional<TokenId>(tokens[position]) : std::nullopt;
}

}  // namespace

std::string_view Name(ReplaySkip skip) {
  switch (skip) {
    case ReplaySkip::kNoOtherWorker:
      return "no_other_worker";
    case ReplaySkip::kBusy:
      return "busy";
    case ReplaySkip::kNotDeterministic:
      return "not_deterministic";
    case ReplaySkip::kTooLong:
      return "too_long";
    case ReplaySkip::kWorkerLeft:
      return "worker_left";
    case ReplaySkip::kFailed:
      break;
  }
  return "failed";
}

std::optional<ReplayDifference> FirstDifference(const std::vector<SampleOutput>& first,
                                                const std::vector<SampleOutput>& replay) {
  for (size_t s = 0; s < first.size(); ++s) {
    const std::vector<TokenId>& a = first[s].tokens;
    const std::vector<TokenId>& b = replay[s].tokens;
    const size_t end = first[s].cut ? a.size() : std::max(a.size(), b.size());
    for (size_t i = 0; i < end; ++i) {
      if (At(a, i) == At(b, i)) continue;
      return ReplayDifference{static_cast<int32_t>(s), static_cast<int32_t>(i), At(a, i), At(b, i)};
    }
    if (!first[s].cut && first[s].finish != replay[s].finish) {
      return ReplayDifference{static_cast<int32_t>(s), static_cast<int32_t>(end), {}, {}};
    }
  }
  return std::nullopt;
}

Replays::Replays(const CoreOptions& options, const WorkerBook& book, const PairBook& pairs)
    : options_(options.replay),
      tag_(options.tag),
      book_(book),
      pairs_(pairs),
      random_(options.seed) {}

std::vector<RequestId> Replays::running() const {
  std::vector<RequestId> ids;
  for (const auto& [id, kept] : running_) ids.push_back(id);
  return ids;
}

// Ends the check of a request that is not compared. `kept` was counted in tokens_.
void Replays::Skip(const Kept& kept, ReplaySkip why, std::vector<ReplayResult>& results) {
  tokens_ -= kept.tokens;
  ReplayResult& result = results.emplace_back();
  result.request = kept.spec->id;
  result.first = kept.workers;
  result.skipped = why;
}

void Replays::OnRequestEnd(const RequestMachine& ended,
                           Time now,
                           std::vector<ReplayResult>& results) {
  if (options_.sample <= 0 || !ended.result().ok() || ended.spec().pinned.has_value()) return;
  if (std::uniform_real_distribution<double>(0, 1)(random_) >= options_.sample) return;
  Kept kept;
  kept.spec = ended.shared_spec();
  kept.output = ended.Output();
  kept.workers = ended.last_workers();
  kept.since = now;
  kept.tokens = static_cast<int64_t>(kept.spec->prompt.size());
  for (const SampleOutput& sample : kept.output) {
    const auto length = static_cast<int32_t>(sample.tokens.size());
    kept.tokens += length;
    kept.longest = std::max(kept.longest, length);
  }
  if (kept.longest == 0) return;
  tokens_ += kept.tokens;
  if (kept.tokens > options_.max_tokens) return Skip(kept, ReplaySkip::kTooLong, results);
  const bool full = static_cast<int32_t>(waiting_.size()) >= options_.max_waiting;
  if (full || tokens_ > options_.max_tokens) return Skip(kept, ReplaySkip::kBusy, results);
  for (const WorkerId& id : {kept.workers.prefill, kept.workers.decode}) {
    const WorkerSlot slot = book_.Find(id);
    if (slot == kNoWorker) return Skip(kept, ReplaySkip::kWorkerLeft, results);
    if (!book_.record(slot).info.deterministic) {
      return Skip(kept, ReplaySkip::kNotDeterministic, results);
    }
  }
  if (!ChooseDecode(kept)) return Skip(kept, ReplaySkip::kNoOtherWorker, results);
  waiting_.push_back(std::move(kept));
}

int64_t Replays::BlocksFor(const Kept& kept, int32_t block_tokens) const {
  const int64_t output = int64_t{kept.longest} * kept.spec->samples;
  return (static_cast<int64_t>(kept.spec->prompt.size()) + output) / std::max(1, block_tokens) +
         kept.spec->samples;
}

// The ready decode worker with the fewest requests, other than that of the first run, whose arena
// could hold the request.
std::optional<WorkerSlot> Replays::ChooseDecode(const Kept& kept) const {
  std::optional<WorkerSlot> best;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerRecord& worker = book_.record(slot);
    if (!worker.info.can_decode || worker.state != WorkerState::kReady) continue;
    if (!worker.info.deterministic) continue;
    if (worker.info.id == kept.workers.decode) continue;
    if (BlocksFor(kept, worker.info.block_tokens) > worker.info.blocks) continue;
    if (!best || book_.Estimate(slot).requests < book_.Estimate(*best).requests) best = slot;
  }
  return best;
}

// A ready prefill worker, if possible not that of the first run; kNoWorker: the decode worker
// serves alone.
WorkerSlot Replays::ChoosePrefill(const Kept& kept, WorkerSlot decode, Time now) const {
  const auto rank = [&](WorkerSlot slot) {
    const bool same = book_.record(slot).info.id == kept.workers.prefill;
    return std::make_pair(same, book_.Estimate(slot).queued_tokens);
  };
  WorkerSlot best = kNoWorker;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerRecord& worker = book_.record(slot);
    if (!worker.info.can_prefill || worker.state != WorkerState::kReady || slot == decode) continue;
    if (!worker.info.deterministic || pairs_.Avoided(slot, decode, now)) continue;
    if (BlocksFor(kept, worker.info.block_tokens) > worker.info.blocks) continue;
    if (best == kNoWorker || rank(slot) < rank(best)) best = slot;
  }
  return best;
}

// Whether the worker takes the replay without delaying the work that it has.
bool Replays::HasRoom(WorkerSlot slot, const Kept& kept) const {
  const WorkerInfo& info = book_.record(slot).info;
  const LoadEstimate load = book_.Estimate(slot);
  return load.queued_tokens == 0 && load.requests < info.max_sequences &&
         load.blocks_free >= BlocksFor(kept, info.block_tokens);
}

std::shared_ptr<const RequestSpec> Replays::Next(bool busy,
                                                 Time now,
                                                 std::vector<ReplayResult>& results) {
  while (!waiting_.empty()) {
    const Kept& kept = waiting_.front();
    const std::optional<WorkerSlot> decode = ChooseDecode(kept);
    const bool late = now - kept.since >= kMaxWait;
    if (late || !decode) {
      Skip(kept, late ? ReplaySkip::kBusy : ReplaySkip::kNoOtherWorker, results);
      waiting_.pop_front();
      continue;
    }
    if (busy || static_cast<int32_t>(running_.size()) >= options_.max_running) return nullptr;
    const WorkerSlot prefill = ChoosePrefill(kept, *decode, now);
    if (!HasRoom(*decode, kept)) return nullptr;
    if (prefill != kNoWorker && !HasRoom(prefill, kept)) return nullptr;
    auto spec = std::make_shared<RequestSpec>(*kept.spec);
    spec->id = RequestId(tag_ | kReplayBit | ++replays_);
    spec->replay = true;
    spec->pinned = PinnedWorkers{prefill == kNoWorker ? WorkerId() : book_.record(prefill).info.id,
                                 book_.record(*decode).info.id};
    spec->priority = std::numeric_limits<int32_t>::min();
    spec->client_tag = 0;
    spec->prompt_logprobs = -1;
    // The longest sample ended here, by its tokens or for a reason that is not compared.
    spec->max_tokens = kept.longest;
    spec->min_tokens = std::min(spec->min_tokens, spec->max_tokens);
    if (spec->deadline != kNever) spec->deadline = now + (spec->deadline - spec->arrival);
    spec->arrival = now;
    running_.emplace(spec->id, std::move(waiting_.front()));
    waiting_.pop_front();
    return spec;
  }
  return nullptr;
}

void Replays::OnReplayEnd(const RequestMachine& ended, std::vector<ReplayResult>& results) {
  const auto found = running_.find(ended.spec().id);
  if (found == running_.end()) return;
  const Kept kept = std::move(found->second);
  running_.erase(found);
  const Status& status = ended.result();
  if (!status.ok()) {
    const bool busy = status.code() == StatusCode::kResourceExhausted;
    Skip(kept, busy ? ReplaySkip::kBusy : ReplaySkip::kFailed, results);
  } else {
    tokens_ -= kept.tokens;
    ReplayResult& result = results.emplace_back();
    result.request = kept.spec->id;
    result.first = kept.workers;
    result.mismatch = FirstDifference(kept.output, ended.Output());
    result.cached_tokens = ended.cached_tokens();
  }
  results.back().replay = ended.last_workers();
}

}  // namespace baton::router
