#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/cluster/load.h"
#include "common/collective/mpi_world.h"

// What the leader of a group and its followers on other hosts send each other as letters of MPI.
// Both ends are the same build, and hosts of one group have the same byte order.
namespace baton {

// The first byte of a letter.
enum class RankMail : char {
  kText = 1,  // a message of the group's start, or why a follower ends
  kStep,      // leader: a step message, as in the StepRing
  kEnded,     // follower: EndedSteps
  kBeat,      // the sender lives
  kShard,     // a message of the data plane
  kBye,       // leader: the group ends in order
};

struct EndedSteps {
  uint64_t count = 0;  // messages that have ended
  int64_t steps = 0;   // and RankTimes
  double step_seconds = 0;
  double exchange_seconds = -1;  // negative: unset
};

std::string MailOf(RankMail kind, std::string_view bytes = {});
std::string MailOf(uint64_t ended, const RankTimes& times);
// Internal when `bytes` is not an EndedSteps.
StatusOr<EndedSteps> EndedIn(std::string_view bytes);
RankTimes TimesOf(const EndedSteps& ended);

// A rank sends a beat after kBeatEvery. When nothing has come from a rank on another host for
// kSilence, the rank, its host or the network between is lost.
inline constexpr Duration kBeatEvery = std::chrono::milliseconds(100);
inline constexpr Duration kSilence = std::chrono::seconds(3);

// How long a wait for letters sleeps between two looks, when the last letter that was not a beat
// came `idle` ago: a letter is late by at most 2% of the pause before it, and by at most 2 ms.
Duration LetterPause(Duration idle);

// Texts that one thread hands to another. Thread-safe.
class TextQueue final {
 public:
  void Push(std::string text);
  // Every waiting and later Take returns `reason` once the queue is empty.
  void Close(Status reason);
  // DeadlineExceeded after `limit`.
  StatusOr<std::string> Take(Duration limit);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> texts_;
  Status closed_;
};

}  // namespace baton
