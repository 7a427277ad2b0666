#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/collective/group_memory.h"
#include "common/collective/mpi_world.h"
#include "common/group/rank_link.h"
#include "common/group/rank_mail.h"
#include "common/group/step_ring.h"

namespace baton {

// The leader of a group as a follower on another host sees it. All messages are letters of MPI. A
// thread takes the leader's letters, publishes its step messages in a ring of this process, sends
// beats, passes an abort between the memory of this host and MPI, and says when the group has
// ended. Thread-safe.
class RemoteLeader final : public RankLink {
 public:
  // `ended` is called on the thread, once: OK when the leader ends the group in order; else the
  // reason why the group is broken: an abort, a leader that is silent for kSilence, or the end of
  // the process that started this one. `world` and `memory` outlive the result.
  RemoteLeader(MpiWorld& world,
               GroupMemory& memory,
               std::function<void(const Status& reason)> ended);
  ~RemoteLeader() override;

  using RankLink::Send;
  Status Send(std::string_view text, int descriptor) override;
  StatusOr<Message> Receive(Duration limit) override;

  // From now on step messages go into `ring`, which has one follower and outlives this object.
  void Attach(StepRing& ring, Duration limit);
  // Tells the leader that `count` step messages have ended.
  void TellEnded(uint64_t count, const RankTimes& times);

  // Messages of the data plane to and from the leader; `listener` is called on the thread.
  Status SendShard(std::string_view message);
  void ListenToShards(std::function<void(std::string_view message)> listener);

 private:
  void Run(const std::stop_token& stop);
  Status Handle(const MpiLetter& letter);
  Status PublishStep(std::string_view bytes);

  MpiWorld& world_;
  GroupMemory& memory_;
  const std::function<void(const Status& reason)> ended_;
  const pid_t parent_;
  TextQueue texts_;
  Time heard_;        // of the thread
  Time worked_{};     // of the thread: when a letter came that was not a beat
  bool bye_ = false;  // of the thread
  std::mutex mutex_;  // of what follows
  StepRing* ring_ = nullptr;
  Duration step_limit_{};
  std::function<void(std::string_view message)> shard_listener_;
  std::jthread thread_;
};

}  // namespace baton
