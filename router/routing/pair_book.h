#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/types.h"

namespace baton::router {

// A prefill worker and a decode worker between which the latest hand-off failed.
struct FailingPair {
  int32_t failures = 0;  // in a row
  Status why;            // of the latest failure that was counted
  Time last{};           // of the latest failure that was counted
  Time avoided_until{};  // until then hand-offs go through other pairs, if there are any
};

// A change of a pair that operators should see.
struct PairChange {
  WorkerId prefill;
  WorkerId decode;
  std::optional<FailingPair> failing;  // nullopt: a hand-off succeeded again
};

// The pairs (prefill, decode) of workers whose latest hand-off failed, although the decode worker
// had room: perhaps nothing that one of them sends reaches the other (a firewall, a wrong address).
// A failing pair is avoided for a time that doubles with each failure. Then one request tries the
// pair again, while the others still avoid it. A success makes the pair normal. A pair that failed
// several times in a row is broken: a decode worker that serves alone is preferred to it.
//
// A value: no I/O or clock. Owned by Placement; not thread-safe.
class PairBook final {
 public:
  using Pair = std::pair<WorkerSlot, WorkerSlot>;

  // A hand-off that began at `began` failed. Failures of hand-offs that began before the latest
  // counted failure have the same cause, and only the first of them counts. Returns the pair's new
  // state when the failure counts, else null.
  const FailingPair* NoteFailed(
      WorkerSlot prefill, WorkerSlot decode, const Status& why, Time began, Time now);
  // A hand-off committed. Returns whether the pair was failing.
  bool NoteCommitted(WorkerSlot prefill, WorkerSlot decode);
  // A hand-off is given to the pair. When the time to avoid the pair has passed, this hand-off is
  // the try, and the pair is avoided until the result is known, or for some seconds.
  void NoteGiven(WorkerSlot prefill, WorkerSlot decode, Time now);

  // Whether other pairs are preferred to this one.
  bool Avoided(WorkerSlot prefill, WorkerSlot decode, Time now) const;
  // Whether the pair is avoided, and a decode worker that serves alone is preferred as well.
  bool Broken(WorkerSlot prefill, WorkerSlot decode, Time now) const;

  // The worker has left: its slot may be given to another worker.
  void Forget(WorkerSlot slot);

  const std::map<Pair, FailingPair>& failing() const { return failing_; }

 private:
  std::map<Pair, FailingPair> failing_;
};

}  // namespace baton::router
