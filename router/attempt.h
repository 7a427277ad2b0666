#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "router/types.h"

namespace baton::router {

// One attempt at a range of a request's samples: the state of each worker's part, as the reports
// of the workers tell it. Two workers send their reports on two streams, so that the order of the
// reports of one worker says nothing about the other's. Each part therefore has its own state.
//
// The prefill worker's part:
//   Alone      there is no such part: the decode worker serves alone
//   Computing  neither of the next two
//   Computed   all its tokens have arrived
//   Sent       the transfer of the KV has ended, or is not needed
//   Done       both; or the worker failed or was lost when it was not needed any more
// The decode worker's part:
//   AwaitingKv  dispatched; no report says that the KV has arrived or is not needed
//   Parked      the hand-off was refused: no worker has the part before the next redirect
//   Decoding    the KV has arrived, or is not needed
//   EndedFirst  the part has ended; no report says that the KV has arrived or is not needed
//   Ended       the part has ended after Decoding
//   Unneeded    the KV is not needed, and no worker had the part
// attempt.cc has the table of transitions. A part that a worker serves alone begins in Decoding.
//
// A value. Owned by RequestMachine.
class Attempt final {
 public:
  // A decode worker, and the epoch of its part. The epoch is new with each redirect, because a
  // cancelled part may end late.
  struct DecodePart {
    WorkerSlot worker;
    Epoch epoch;
  };

  // The two workers of `where` differ. `resumed`: the number of output tokens that are dispatched
  // together with the prompt.
  Attempt(Epoch epoch, SampleRange samples, size_t resumed, const Assignment& where);

  // ---- events. An event that the table does not list for the present state has no effect.

  // The prefill worker's tokens have all arrived.
  void OnComputed();
  // The prefill worker has reported the end of the transfer.
  void OnSent();
  // The prefill worker has reported that no KV has to be sent.
  void OnNothingToSend();
  // The prefill worker has failed or was lost, and the attempt goes on without this worker.
  void OnPrefillGone();
  // The decode worker has the KV: the worker reported the commit, or sent a token.
  void OnKvArrived();
  // The decode worker's part has ended.
  void OnDecodeEnded();
  // The decode worker `boot` refused the hand-off. `in_doubt`: perhaps the prefill worker cannot
  // reach this worker. May be called while decode() has a worker and committed() is false.
  void OnRefused(BootId boot, bool in_doubt, Time now);
  // Tries the redirect at `until` (again). To be called in Parked.
  void Park(Time until);
  // The hand-off is offered to another decode worker. To be called in Parked.
  void OnRedirected(const DecodePart& to);

  // ---- state

  Epoch epoch() const { return epoch_; }  // of the attempt, and of the prefill worker's part
  const SampleRange& samples() const { return samples_; }
  size_t resumed() const { return resumed_; }
  // kNoWorker when the decode worker serves alone.
  WorkerSlot prefill() const;
  // Null when no worker has the part (Parked, Unneeded).
  const DecodePart* decode() const;
  WorkerSlot decode_worker() const;  // kNoWorker when decode() is null
  bool Uses(WorkerSlot slot) const { return slot == prefill() || slot == decode_worker(); }
  // Whether the worker has a part of the attempt under this epoch.
  bool Has(WorkerSlot worker, Epoch epoch) const;

  // The decode worker has the KV or needs none.
  bool committed() const;
  // The time of the next try to redirect; kNever: not parked.
  Time redirect_at() const;
  // All tokens of both workers have arrived.
  bool tokens_complete() const;
  // Both workers have sent their last report.
  bool accounted() const;
  // The prefill worker may still compute or keep KV.
  bool prefill_open() const;
  // The decode worker may still compute or hold blocks.
  bool decode_open() const;

  // The decode workers that refused the hand-off; one entry for each refusal.
  const std::vector<BootId>& refused_by() const { return refused_by_; }
  // Decode workers that the prefill worker cannot reach, as several refusals in several seconds
  // show. They are not used again in this attempt.
  std::vector<BootId> unreachable() const;

 private:
  struct PrefillPart {
    WorkerSlot worker;
  };
  struct Alone {};
  struct Computing : PrefillPart {};
  struct Computed : PrefillPart {};
  struct Sent : PrefillPart {};
  struct Done : PrefillPart {};

  struct AwaitingKv : DecodePart {};
  struct Parked {
    Time until;
  };
  struct Decoding : DecodePart {};
  struct EndedFirst : DecodePart {};
  struct Ended : DecodePart {};
  struct Unneeded {};

  // A decode worker with refusals that leave in doubt whether the prefill worker can reach it.
  struct Doubt {
    BootId boot;
    int32_t refusals = 0;
    Time since{};
    bool unreachable = false;
  };

  template <class... States>
  bool DecodeIs() const {
    return (std::holds_alternative<States>(decode_) || ...);
  }
  template <class... States>
  bool PrefillIs() const {
    return (std::holds_alternative<States>(prefill_) || ...);
  }

  Epoch epoch_;
  SampleRange samples_;
  size_t resumed_ = 0;
  std::variant<Alone, Computing, Computed, Sent, Done> prefill_;
  std::variant<AwaitingKv, Parked, Decoding, EndedFirst, Ended, Unneeded> decode_;
  std::vector<BootId> refused_by_;
  std::vector<Doubt> doubts_;
};

}  // namespace baton::router
