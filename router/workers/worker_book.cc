#include "router/workers/worker_book.h"

#include <algorithm>
#include <span>

namespace baton::router {
namespace {

// A heartbeat is assumed to include every dispatch sent at least this long before its arrival.
constexpr Duration kOneWay = std::chrono::milliseconds(5);

void UpdateMeans(std::span<const RankTimes> before,
                 std::span<const RankTimes> now,
                 std::vector<RankMeans>& means) {
  const RankTimes none;
  means.resize(now.size());
  for (size_t rank = 0; rank < now.size(); ++rank) {
    const RankTimes& from = rank < before.size() ? before[rank] : none;
    const RankTimes& to = now[rank];
    const auto steps = static_cast<double>(to.steps - from.steps);
    if (steps <= 0) continue;
    RankMeans& mean = means[rank];
    mean.step_ms = 1e3 * (to.step_seconds - from.step_seconds) / steps;
    mean.exchange_ms.reset();
    if (!to.exchange_seconds) continue;
    const double exchanged = from.exchange_seconds ? *from.exchange_seconds : 0;
    mean.exchange_ms = 1e3 * (*to.exchange_seconds - exchanged) / steps;
  }
}

}  // namespace

std::string_view Name(WorkerState state) {
  switch (state) {
    case WorkerState::kReady:
      return "ready";
    case WorkerState::kSuspect:
      return "suspect";
    case WorkerState::kLost:
      return "lost";
    case WorkerState::kDraining:
      return "draining";
  }
  return "unknown";
}

StatusOr<WorkerSlot> WorkerBook::Add(WorkerInfo info, Time now) {
  for (uint16_t i = 0; i < kMaxWorkers; ++i) {
    if (entries_[i]) continue;
    entries_[i] = std::make_unique<Entry>();
    WorkerRecord& record = entries_[i]->record;
    record.load.engine.blocks_total = info.blocks;
    record.load.engine.blocks_free = info.blocks;
    record.info = std::move(info);
    record.joined = now;
    record.last_heard = now;
    entries_[i]->last_heartbeat = now;
    const auto id_of = [this](WorkerSlot slot) -> const WorkerId& {
      return this->record(slot).info.id;
    };
    const WorkerSlot slot(i);
    slots_.insert(std::ranges::upper_bound(slots_, id_of(slot), {}, id_of), slot);
    std::erase_if(departures_, [&](const Departure& gone) { return gone.id == id_of(slot); });
    return WorkerSlot(i);
  }
  return MakeStatus(StatusCode::kResourceExhausted,
                    "worker {} cannot join: this router serves at most {} workers",
                    info.id,
                    kMaxWorkers);
}

void WorkerBook::Remove(WorkerSlot slot, bool drained, Time now) {
  const WorkerInfo& info = record(slot).info;
  departures_.insert(departures_.begin(), {info.id, info.can_decode, drained, now});
  if (departures_.size() > kMaxDepartures) departures_.pop_back();
  entries_[slot.value()].reset();
  std::erase(slots_, slot);
}

WorkerSlot WorkerBook::Find(const WorkerId& id) const {
  for (const WorkerSlot slot : slots_) {
    if (record(slot).info.id == id) return slot;
  }
  return kNoWorker;
}

void WorkerBook::OnHeartbeat(WorkerSlot slot, const WorkerLoad& load, Time now) {
  Entry& entry = *entries_[slot.value()];
  const double seconds = ToSeconds(now - entry.last_heartbeat);
  const EngineLoad& before = entry.record.load.engine;
  if (seconds > 0.01) {
    const auto rate = [&](int64_t to, int64_t from) {
      return std::max<double>(0, static_cast<double>(to - from)) / seconds;
    };
    entry.record.prompt_tokens_per_second = rate(load.engine.prompt_tokens, before.prompt_tokens);
    entry.record.output_tokens_per_second = rate(load.engine.output_tokens, before.output_tokens);
  }
  UpdateMeans(before.ranks, load.engine.ranks, entry.record.ranks);
  entry.last_heartbeat = now;
  entry.record.load = load;
  entry.change = {};
  std::vector<Booked*> prompts;  // the prompts that the heartbeat includes
  for (auto& [key, booked] : entry.bookings) {
    booked.counted = booked.counted || now - booked.at >= kOneWay;
    if (booked.counted) {
      if (booked.prompt_tokens > 0) prompts.push_back(&booked);
      continue;
    }
    entry.change.requests += 1;
    entry.change.tokens += booked.prompt_tokens;
    entry.change.blocks += booked.blocks;
  }
  SubtractComputed(prompts, load.engine.queued_tokens);
}

// The worker's `queued_tokens` are fewer than the sum of `prompts` by the tokens that the worker
// has computed. Subtracts the computed tokens from the oldest prompts first, so that PromptDone and
// Release later subtract only the tokens that are left.
void WorkerBook::SubtractComputed(std::vector<Booked*>& prompts, int64_t queued_tokens) {
  int64_t computed = -queued_tokens;
  for (const Booked* prompt : prompts) computed += prompt->prompt_tokens;
  if (computed <= 0) return;
  std::ranges::sort(prompts, {}, &Booked::at);
  for (Booked* prompt : prompts) {
    const int64_t part = std::min(prompt->prompt_tokens, computed);
    prompt->prompt_tokens -= part;
    computed -= part;
  }
}

void WorkerBook::Book(
    WorkerSlot slot, RequestId id, Epoch epoch, const Booking& booking, Time now) {
  if (!Has(slot)) return;
  Entry& entry = *entries_[slot.value()];
  const Booked booked{booking.prompt_tokens, booking.blocks, now, false};
  if (!entry.bookings.emplace(std::make_pair(id, epoch), booked).second) return;
  entry.change.requests += 1;
  entry.change.tokens += booked.prompt_tokens;
  entry.change.blocks += booked.blocks;
}

void WorkerBook::PromptDone(WorkerSlot slot, RequestId id, Epoch epoch) {
  if (!Has(slot)) return;
  Entry& entry = *entries_[slot.value()];
  const auto it = entry.bookings.find(std::make_pair(id, epoch));
  if (it == entry.bookings.end()) return;
  entry.change.tokens -= it->second.prompt_tokens;
  it->second.prompt_tokens = 0;
}

void WorkerBook::Release(WorkerSlot slot, RequestId id, Epoch epoch) {
  if (!Has(slot)) return;
  Entry& entry = *entries_[slot.value()];
  const auto it = entry.bookings.find(std::make_pair(id, epoch));
  if (it == entry.bookings.end()) return;
  entry.change.requests -= 1;
  entry.change.tokens -= it->second.prompt_tokens;
  entry.change.blocks -= it->second.blocks;
  entry.bookings.erase(it);
}

LoadEstimate WorkerBook::Estimate(WorkerSlot slot) const {
  const Entry& entry = *entries_[slot.value()];
  const EngineLoad& stats = entry.record.load.engine;
  const Change& change = entry.change;
  const auto at_least_zero = [](int64_t v) { return std::max<int64_t>(0, v); };
  LoadEstimate e;
  e.requests = static_cast<int32_t>(
      at_least_zero(stats.running + stats.waiting + stats.awaiting_kv + change.requests));
  e.queued_tokens = at_least_zero(stats.queued_tokens + change.tokens);
  const int64_t total = entry.record.info.blocks;
  e.blocks_free = static_cast<int32_t>(std::clamp<int64_t>(
      int64_t{stats.blocks_free} - stats.blocks_expected - change.blocks, 0, total));
  e.context_tokens = (total - e.blocks_free) * entry.record.info.block_tokens;
  return e;
}

}  // namespace baton::router
