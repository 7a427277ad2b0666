#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/types.h"

namespace baton::router {

enum class WorkerState : uint8_t {
  kReady,
  kSuspect,   // no message for CoreOptions::suspect_after: receives no new requests
  kLost,      // no message for CoreOptions::lost_after: its requests were dispatched elsewhere
  kDraining,  // finishes its requests and receives no new ones
};

std::string_view Name(WorkerState state);

// The router's estimate of a worker's present load: the last heartbeat plus the dispatches, and
// minus the ends, since then. Never negative.
struct LoadEstimate {
  int32_t requests = 0;       // running, waiting or awaiting KV
  int64_t queued_tokens = 0;  // prompt tokens that are not computed yet
  int32_t blocks_free = 0;
  int64_t context_tokens = 0;  // tokens whose KV occupies the arena
};

// The mean of the steps of one rank between the two latest heartbeats with steps between them.
struct RankMeans {
  double step_ms = 0;
  std::optional<double> exchange_ms = {};  // see RankTimes::exchange_seconds
};

struct WorkerRecord {
  WorkerInfo info;
  WorkerState state = WorkerState::kReady;
  WorkerLoad load;  // the last heartbeat
  Time joined{};
  Time last_heard{};
  double prompt_tokens_per_second = 0;
  double output_tokens_per_second = 0;
  std::vector<RankMeans> ranks;
};

// A worker that has left.
struct Departure {
  WorkerId id;
  bool can_decode = false;
  bool drained = false;  // it had announced its end; else it was lost
  Time at{};
};

// The joined workers: the description, the last heartbeat and the dispatches of each. Booking is
// idempotent by (request, epoch), and the worker's own counts replace the router's at each
// heartbeat, so the load can neither drift nor become negative. Owned by RouterCore; not
// thread-safe.
class WorkerBook final {
 public:
  // Adds a worker in a free slot. Errors: ResourceExhausted when kMaxWorkers have joined.
  StatusOr<WorkerSlot> Add(WorkerInfo info, Time now);
  void Remove(WorkerSlot slot, bool drained, Time now);
  // The latest kMaxDepartures workers that have left and not joined again, the latest first.
  const std::vector<Departure>& departures() const { return departures_; }
  static constexpr size_t kMaxDepartures = 4;

  bool Has(WorkerSlot slot) const { return slot.value() < kMaxWorkers && entries_[slot.value()]; }
  const WorkerRecord& record(WorkerSlot slot) const { return entries_[slot.value()]->record; }
  WorkerSlot Find(const WorkerId& id) const;  // kNoWorker when absent
  // The joined workers, sorted by id.
  const std::vector<WorkerSlot>& slots() const { return slots_; }

  void SetState(WorkerSlot slot, WorkerState state) {
    entries_[slot.value()]->record.state = state;
  }
  // To be called for every message of the worker: any message proves that the worker is alive.
  void Touch(WorkerSlot slot, Time now) { entries_[slot.value()]->record.last_heard = now; }
  void OnHeartbeat(WorkerSlot slot, const WorkerLoad& load, Time now);

  struct Booking {
    int64_t prompt_tokens = 0;  // tokens that the worker must compute
    int32_t blocks = 0;
  };
  void Book(WorkerSlot slot, RequestId id, Epoch epoch, const Booking& booking, Time now);
  void PromptDone(WorkerSlot slot, RequestId id, Epoch epoch);
  void Release(WorkerSlot slot, RequestId id, Epoch epoch);
  size_t bookings(WorkerSlot slot) const { return entries_[slot.value()]->bookings.size(); }

  LoadEstimate Estimate(WorkerSlot slot) const;

 private:
  struct Booked {
    int64_t prompt_tokens = 0;  // tokens that are not known to be computed
    int32_t blocks = 0;
    Time at{};
    bool counted = false;  // the last heartbeat includes this booking
  };
  static void SubtractComputed(std::vector<Booked*>& prompts, int64_t queued_tokens);

  // The changes of load since the last heartbeat.
  struct Change {
    int64_t requests = 0;
    int64_t tokens = 0;
    int64_t blocks = 0;
  };
  struct Entry {
    WorkerRecord record;
    absl::flat_hash_map<std::pair<RequestId, Epoch>, Booked> bookings;
    Change change;
    Time last_heartbeat{};
  };

  std::array<std::unique_ptr<Entry>, kMaxWorkers> entries_;
  std::vector<WorkerSlot> slots_;
  std::vector<Departure> departures_;
};

}  // namespace baton::router
