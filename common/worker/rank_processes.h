#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/app/child_process.h"
#include "common/base/status.h"
#include "common/group/group_executor.h"
#include "common/group/group_shape.h"
#include "common/group/rank_hello.h"
#include "common/group/rank_socket.h"
#include "common/group/step_ring.h"
#include "kernels/device.h"
#include "kernels/dma.h"

namespace baton {

// The followers of a worker's group, as the leader sees them: processes of the same program on this
// host, which end with the leader. When one ends or fails, the whole group is broken: every wait in
// it ends, and status() says why.
//
// Order of use, on the main thread: Start, groups, Agree, TakeArenas. status() and waiting() may be
// used on any thread.
class RankProcesses final {
 public:
  struct Options {
    GroupShape shape;
    CollectiveOptions collective;
    Duration start_limit = std::chrono::minutes(10);  // of one rank, model loading included
  };

  // Starts ranks 1, 2, … with the command line of this process; or waits for them when mpirun
  // started all ranks.
  static StatusOr<std::unique_ptr<RankProcesses>> Start(const Options& options);
  // Kills the followers that have not ended.
  ~RankProcesses();

  // Rank 0's collectives.
  RankGroups groups() const { return collectives_->groups(); }

  // Waits until every follower has loaded its part of the model, and checks that all ranks run the
  // same. Tells them the number of KV blocks that every rank can hold, and returns it.
  // `message_bytes`: the most bytes of a step message. Errors: FailedPrecondition as
  // CheckSameGroup; a follower's own error; Unavailable when a follower has ended;
  // DeadlineExceeded naming the rank that is late.
  StatusOr<int32_t> Agree(const RankHello& ours, size_t message_bytes);
  // Waits until every follower has its arena, and maps the arenas. From then on the followers wait
  // for steps. `dma` is that of rank 0's device, null for host memory; the arenas of GPUs are
  // imported, so that rank 0's device copies all of the group's KV.
  StatusOr<std::vector<FollowerArena>> TakeArenas(Dma* dma);

  StepRing& ring() { return *ring_; }
  // For waits on the ring: they end when the group is broken.
  StepRing::Waiting waiting() const;
  // OK while every rank lives and works.
  Status status() const;

 private:
  struct Follower {
    std::unique_ptr<ChildProcess> process;  // null when mpirun started it
    RankSocket socket;
  };

  explicit RankProcesses(const Options& options) : options_(options) {}
  Status Launch(int rank);
  // What became of a follower that closed its socket.
  std::string DescribeExit(Follower& follower) const;
  // The next message of a follower that is still starting.
  StatusOr<RankSocket::Message> ReceiveFrom(int rank);
  // Looks for followers that end or report an error, and shows the followers that this process
  // lives.
  void Watch(const std::stop_token& stop);
  void Break(int rank, std::string_view reason);

  const Options options_;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<RankCollectives> collectives_;
  std::vector<Follower> followers_;  // follower i is rank i + 1
  std::unique_ptr<StepRing> ring_;
  std::jthread watch_;
};

}  // namespace baton
