#include "router/routing/pair_book.h"

#include <algorithm>

namespace baton::router {
namespace {

// How long a pair is avoided after its first failure. The time doubles with each further failure.
constexpr Duration kFirstAvoid = std::chrono::seconds(2);
constexpr Duration kMaxAvoid = std::chrono::seconds(64);
// The longest wait for the result of a try. Connecting takes at most 5 s (prefill_worker).
constexpr Duration kMaxTry = std::chrono::seconds(10);
// A pair is broken after this many failures in a row.
constexpr int32_t kBrokenAfter = 3;

Duration AvoidFor(int32_t failures) {
  const int32_t doublings = std::clamp(failures - 1, 0, 16);
  return std::min(kMaxAvoid, kFirstAvoid * (int64_t{1} << doublings));
}

}  // namespace

const FailingPair* PairBook::NoteFailed(
    WorkerSlot prefill, WorkerSlot decode, const Status& why, Time began, Time now) {
  FailingPair& pair = failing_[{prefill, decode}];
  if (pair.failures > 0 && began < pair.last) return nullptr;
  ++pair.failures;
  pair.why = why;
  pair.last = now;
  pair.avoided_until = now + AvoidFor(pair.failures);
  return &pair;
}

bool PairBook::NoteCommitted(WorkerSlot prefill, WorkerSlot decode) {
  return failing_.erase({prefill, decode}) > 0;
}

void PairBook::NoteGiven(WorkerSlot prefill, WorkerSlot decode, Time now) {
  const auto found = failing_.find({prefill, decode});
  if (found == failing_.end() || now < found->second.avoided_until) return;
  found->second.avoided_until = now + kMaxTry;
}

bool PairBook::Avoided(WorkerSlot prefill, WorkerSlot decode, Time now) const {
  const auto found = failing_.find({prefill, decode});
  return found != failing_.end() && now < found->second.avoided_until;
}

bool PairBook::Broken(WorkerSlot prefill, WorkerSlot decode, Time now) const {
  return Avoided(prefill, decode, now) && failing_.at({prefill, decode}).failures >= kBrokenAfter;
}

void PairBook::Forget(WorkerSlot slot) {
  std::erase_if(failing_, [&](const auto& entry) {
    return entry.first.first == slot || entry.first.second == slot;
  });
}

}  // namespace baton::router
