#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "router/types.h"

namespace baton::router {

// One attempt at a range of a request's samples: a part for each of the two workers, and the state
// of each part as far as reports have arrived. The workers report on two streams. A report of one
// worker can therefore arrive before or after any report of the other, and each part has a state of
// its own. attempt.cc has the table of transitions.
//
// The prefill worker's part:
//   Alone      does not exist, because the decode worker serves alone
//   Computing  is dispatched
//   Computed   its last token has arrived; the end of the transfer is not reported
//   Sent       the end of the transfer is reported; its last token has not arrived
//   Done       has ended; or its worker failed or was lost and is not needed any more
// The decode worker's part:
//   AwaitingKv  is dispatched, and needs KV for all that is known
//   Decoding    has its KV or needs none; also the first state of a part that serves alone
//   EndedFirst  has ended before a report that its KV arrived or is not needed
//   Ended       has ended, and such a report has arrived
//   Parked      belongs to no worker, because the hand-off was refused, and waits for a redirect
//   Unneeded    belonged to no worker when the prefill worker reported that no KV is needed
//
// A value. Owned by RequestMachine.
class Attempt final {
 public:
  // A decode worker, and the epoch of its part. The epoch is new with each redirect, because a
  // cancelled part may end late.
  struct DecodePart {
    WorkerSlot worker;
    Epoch epoch;
    Time since;  // of the dispatch
  };

  // The two workers of `where` differ. `resumed`: the number of output tokens that are dispatched
  // together with the prompt.
  Attempt(Epoch epoch, SampleRange samples, size_t resumed, const Assignment& where, Time now);

  // ---- events. An event has no effect in a state for which the table has no line.

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
  // The decode worker, whose process is `boot`, refused the hand-off. The redirect is due at once.
  void OnRefused(BootId boot, Time now);
  // Postpones the redirect.
  void OnPostponed(Time until);
  // The prefill worker takes its blocks before the decode worker, so it may hold them from now on.
  void OnPrefillFirst() { prefill_holds_ = true; }
  // The hand-off is offered to another decode worker, or to the same one under another epoch.
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

  // The prefill worker may hold blocks of the prompt.
  bool prefill_holds() const { return prefill_holds_; }
  // The decode workers that refused the hand-off; one entry for each refusal.
  const std::vector<BootId>& refused_by() const { return refused_by_; }

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
  struct Decoding : DecodePart {};
  struct EndedFirst : DecodePart {};
  struct Ended : DecodePart {};
  struct Parked {
    Time until;
  };
  struct Unneeded {};

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
  std::variant<AwaitingKv, Decoding, EndedFirst, Ended, Parked, Unneeded> decode_;
  std::vector<BootId> refused_by_;
  bool prefill_holds_ = false;
};

}  // namespace baton::router
