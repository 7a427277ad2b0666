#include <algorithm>
#include <iterator>

#include "common/engine/scheduler.h"

namespace baton {
namespace {

template <class... Args>
Status Broken(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInternal, format, std::forward<Args>(args)...);
}

}  // namespace

template <class Visit>
void Scheduler::VisitOtherLeases(const Visit& visit) const {
  for (const auto& [key, lease] : handoffs_) visit(lease);
  for (size_t i = 0; i < steps_.size(); ++i) {
    visit(steps_[i].copied.lease());
    for (const Lease& lease : steps_[i].ended_leases) visit(lease);
  }
}

std::vector<const Lease*> Scheduler::AllLeases() const {
  std::vector<const Lease*> leases;
  for (const auto& [key, active] : active_) {
    for (const Sequence& sequence : active->sequences) {
      leases.push_back(&sequence.table);
      if (sequence.read_state != nullptr) leases.push_back(sequence.read_state.get());
    }
  }
  VisitOtherLeases([&](const Lease& lease) { leases.push_back(&lease); });
  return leases;
}

int32_t Scheduler::LeakedBlocks() const {
  int64_t held = 0;
  for (const Sequence* sequence : running_) {
    held += sequence->table.held();
    if (sequence->read_state != nullptr) held += sequence->read_state->held();
  }
  for (const Sequence* sequence : awaiting_kv_) held += sequence->table.held();
  VisitOtherLeases([&](const Lease& lease) { held += lease.held(); });
  return held == cache_.references() ? 0 : cache_.CountLeaked(AllLeases());
}

Status Scheduler::CheckSequence(const Sequence& sequence) const {
  const RequestId id = sequence.request->request.id;
  const bool holds =
      sequence.state == SequenceState::kRunning || sequence.state == SequenceState::kAwaitingKv;
  if (!holds && (sequence.table.held() != 0 || sequence.read_state != nullptr ||
                 sequence.slots != 0 || sequence.promised != 0)) {
    return Broken("request {}: a {} sequence has {} blocks and {} slots",
                  id,
                  Name(sequence.state),
                  sequence.table.held(),
                  sequence.slots);
  }
  if (holds &&
      (sequence.slots < 1 || cache_.BlocksFor(sequence.planned()) > sequence.table.size() ||
       sequence.promised < 0)) {
    return Broken("request {}: {} tokens in {} blocks, {} slots, {} promised",
                  id,
                  sequence.computed,
                  sequence.table.size(),
                  sequence.slots,
                  sequence.promised);
  }
  if (holds && std::cmp_not_equal(sequence.table.state().size(), cache_.state_blocks())) {
    return Broken("request {}: its state has {} blocks instead of {}",
                  id,
                  sequence.table.state().size(),
                  cache_.state_blocks());
  }
  if (sequence.state == SequenceState::kRunning && sequence.remaining() < 1) {
    return Broken("request {}: a running sequence has nothing to compute", id);
  }
  if (never_evicts() && slides() && sequence.table.held() > sequence.promised) {
    return Broken("request {}: it holds {} blocks; {} are promised",
                  id,
                  sequence.table.held(),
                  sequence.promised);
  }
  for (int32_t group = 0; group < sequence.table.groups(); ++group) {
    // A sequence that waits for KV has its cached blocks already.
    const int32_t next =
        sequence.state == SequenceState::kAwaitingKv ? sequence.length() : sequence.computed;
    if (sequence.table.first(group) <= room_.FirstRead(group, next)) continue;
    return Broken(
        "request {}: the blocks of {} tokens in cache group {} are released; {} are computed",
        id,
        sequence.table.first(group) * cache_.block_tokens(),
        group,
        sequence.computed);
  }
  if (sequence.stored > cache_.BlocksFor(sequence.length())) {
    return Broken(
        "request {}: {} blocks stored of {} tokens", id, sequence.stored, sequence.length());
  }
  return OkStatus();
}

Status Scheduler::CheckQueues() const {
  size_t waiting = 0;
  size_t running = 0;
  size_t awaiting = 0;
  int32_t held = 0;
  int32_t reservations = 0;
  int32_t slots = 0;
  int32_t promised = 0;
  for (const auto& [key, active] : active_) {
    for (const Sequence& sequence : active->sequences) {
      BATON_RETURN_IF_ERROR(CheckSequence(sequence));
      auto* pointer = const_cast<Sequence*>(&sequence);
      const bool queued = waiting_.contains(pointer);
      const bool runs = std::ranges::count(running_, pointer) == 1;
      held += active->held();
      if (queued != (sequence.state == SequenceState::kWaiting && !active->held()) ||
          runs != (sequence.state == SequenceState::kRunning)) {
        return Broken(
            "request {}: a {} sequence is in the wrong queue", key.first, Name(sequence.state));
      }
      waiting += queued;
      running += runs;
      awaiting += sequence.state == SequenceState::kAwaitingKv;
      reservations += queued && active->awaits_reservation();
      slots += sequence.slots;
      promised += sequence.promised;
    }
  }
  if (waiting != waiting_.size() || running != running_.size() || awaiting != awaiting_kv_.size() ||
      held != held_ || reservations != waiting_reservations_ || slots != slots_ ||
      promised != promised_ || slots_ > slot_limit_ ||
      !std::ranges::is_sorted(running_, ByRank{})) {
    return Broken(
        "counter and recount differ, or the running sequences are not in rank order: waiting {} "
        "and {}, held {} and {}, running {} and {}, awaiting KV {} and {}, reservations {} and {}, "
        "slots {} and {} "
        "(limit {}), promised {} and {}",
        waiting_.size(),
        waiting,
        held_,
        held,
        running_.size(),
        running,
        awaiting_kv_.size(),
        awaiting,
        waiting_reservations_,
        reservations,
        slots_,
        slots,
        slot_limit_,
        promised_,
        promised);
  }
  const int32_t limit = slides() ? cache_.total() : cache_.available();
  if (never_evicts() && promised_ > limit) {
    return Broken("{} blocks are promised; {} are available", promised_, limit);
  }
  return OkStatus();
}

// Each running sequence has one row in the steps under way at most, or consecutive chunks.
Status Scheduler::CheckSteps() const {
  absl::flat_hash_map<const Sequence*, int32_t> next;  // the token after those under way
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].plan.foreseen) continue;
    for (const PlanRow& row : steps_[i].plan.rows) {
      const Sequence& sequence = *row.sequence;
      if (sequence.state == SequenceState::kFinished) continue;
      if (sequence.state != SequenceState::kRunning) {
        return Broken("request {}: a {} sequence is in a step under way",
                      sequence.request->request.id,
                      Name(sequence.state));
      }
      const int32_t first = next.try_emplace(&sequence, sequence.computed).first->second;
      if (row.first != first) {
        return Broken(
            "request {}: a step under way computes from token {} on; the steps before it "
            "compute up to token {}",
            sequence.request->request.id,
            row.first,
            first);
      }
      next[&sequence] = row.first + row.count;
    }
  }
  for (const Sequence* sequence : running_) {
    const auto found = next.find(sequence);
    const int32_t end = found == next.end() ? sequence->computed : found->second;
    if (sequence->planned() == end) continue;
    return Broken("request {}: {} tokens are planned; the steps under way compute up to {}",
                  sequence->request->request.id,
                  sequence->planned(),
                  end);
  }
  return OkStatus();
}

Status Scheduler::CheckIntegrity() const {
  BATON_RETURN_IF_ERROR(CheckQueues());
  BATON_RETURN_IF_ERROR(CheckSteps());
  return cache_.Check(AllLeases());
}

}  // namespace baton
