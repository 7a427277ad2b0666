#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/collective/group_memory.h"
#include "common/collective/mpi_world.h"
#include "common/group/rank_link.h"
#include "common/group/rank_mail.h"
#include "common/group/step_ring.h"

namespace baton {

// The followers of a group that are on other hosts than their leader, as the leader sees them. All
// messages are letters of MPI. A thread takes the letters of the followers, sends beats, and breaks
// the group when a follower is silent for kSilence or ends with an error; and it passes an abort
// between the memory of the leader's host and MPI. Thread-safe.
class RemoteRanks final {
 public:
  // `broken(rank, reason)` is called on the thread, once. `world` and `memory` outlive the result.
  RemoteRanks(MpiWorld& world,
              GroupMemory& memory,
              const std::vector<int>& ranks,
              std::function<void(int rank, std::string_view reason)> broken);
  // Lets the followers end in order.
  ~RemoteRanks();

  const std::vector<int>& ranks() const { return ranks_; }
  // The messages of the start of `rank`, one of ranks().
  RankLink& link(int rank);
  // From now on the followers' ends of messages go into `ring`, which outlives this object.
  void Attach(StepRing& ring);
  // Sends a step message of the ring to all followers.
  Status Forward(std::span<const std::byte> message);

  // Messages of the data plane to and from a rank; `listener` is called on the thread.
  Status SendShard(int rank, std::string_view message);
  void ListenToShards(std::function<void(int rank, std::string_view message)> listener);

 private:
  class Link;
  struct Rank;

  void Run(const std::stop_token& stop);
  void Handle(const MpiLetter& letter);
  void FindSilentRanks(Time now);
  void Break(int rank, std::string_view reason);

  MpiWorld& world_;
  GroupMemory& memory_;
  const std::vector<int> ranks_;
  const std::function<void(int rank, std::string_view reason)> broken_;
  std::map<int, std::unique_ptr<Rank>> by_rank_;
  bool is_broken_ = false;  // of the thread
  Time worked_{};           // of the thread: when a letter came that was not a beat
  std::mutex mutex_;        // of what follows
  StepRing* ring_ = nullptr;
  std::function<void(int rank, std::string_view message)> shard_listener_;
  std::jthread thread_;
};

}  // namespace baton
