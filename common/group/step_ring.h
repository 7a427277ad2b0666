#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/cluster/load.h"

namespace baton {

// Carries step messages from the leader of a group to its followers through shared memory on one
// host: a ring of slots that the leader fills and that every follower reads in place. Followers
// busy-poll for a short time after a message and then sleep, so that an idle group takes no
// processor time. One process creates the ring, and the others open it by its file descriptor. Each
// of the two sides is used by one thread.
class StepRing final {
 public:
  // The messages that can be under way: the leader waits before it publishes more.
  static constexpr uint64_t kSlots = 16;

  struct Waiting {
    // How long a follower busy-polls for the next message before it sleeps. Waking a sleeping
    // thread takes about 50 µs.
    Duration busy_poll = std::chrono::microseconds(500);
    // Returns an error when the group is broken; every wait then ends with this error. Called every
    // few milliseconds while a side waits.
    std::function<Status()> broken = [] { return OkStatus(); };
  };

  // Creates the ring for `followers` followers and messages of at most `message_bytes`.
  static StatusOr<std::unique_ptr<StepRing>> Create(int followers, size_t message_bytes);
  // Opens the ring of the leader. InvalidArgument when `fd` is not such a ring.
  static StatusOr<std::unique_ptr<StepRing>> Open(UniqueFd fd);
  ~StepRing();
  StepRing(const StepRing&) = delete;

  // To be passed to the followers' processes.
  int fd() const { return fd_.get(); }
  int followers() const;
  size_t message_bytes() const;

  // Leader. The memory for the next message, of `bytes` bytes: waits until every follower has ended
  // the message whose slot it is. Errors: ResourceExhausted when `bytes` is more than
  // message_bytes; DeadlineExceeded naming the follower that is late.
  StatusOr<std::span<std::byte>> Prepare(size_t bytes, const Waiting& waiting, Duration limit);
  // Leader. Publishes the prepared message.
  void Publish();
  // Leader. The number of messages published so far.
  uint64_t published() const { return published_; }
  // Leader. Whether every follower has ended message `number` (1 is the first).
  bool HasEnded(uint64_t number) const;
  // Leader. Waits until every follower has ended message `number` (1 is the first).
  // DeadlineExceeded names the follower that is late.
  Status WaitEnded(uint64_t number, const Waiting& waiting, Duration limit);
  // Leader. What follower `follower` has told with the message that it ended last.
  RankTimes times(int follower) const;
  // Leader. Follower `follower`, which is on another host, has ended `count` messages in all. May
  // be called on another thread than the rest.
  void SetEnded(int follower, uint64_t count, const RankTimes& times);
  // Leader. The leader lives: followers see the count change (beats()).
  void Beat();

  // Follower. The next message; nothing when `timeout` passes first. The bytes are valid until the
  // message has ended.
  StatusOr<std::optional<std::span<const std::byte>>> Next(const Waiting& waiting,
                                                           Duration timeout);
  // Follower `follower` (0 is the first) has ended the oldest message that has not ended. `times`
  // are those of its rank so far.
  void End(int follower, const RankTimes& times = {});
  // Follower. The number of messages that it has ended.
  uint64_t ended_messages() const { return ended_; }
  uint64_t beats() const;

 private:
  struct Shared;
  struct Slot;
  struct Ended;
  static size_t SlotBytes(size_t message_bytes);
  static size_t RingBytes(size_t followers, size_t message_bytes);
  StepRing(UniqueFd fd, std::byte* base, size_t bytes);
  Slot& SlotOf(uint64_t number) const;
  std::byte* DataOf(uint64_t number) const;
  Ended* ended() const;  // one for each follower

  const UniqueFd fd_;
  std::byte* const base_;
  const size_t bytes_;
  Shared& shared_;
  uint64_t published_ = 0;  // leader
  uint64_t read_ = 0;       // follower: messages read
  uint64_t ended_ = 0;      // follower: messages ended
};

}  // namespace baton
