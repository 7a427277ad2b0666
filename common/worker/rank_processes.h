#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/app/child_process.h"
#include "common/base/status.h"
#include "common/collective/mpi_world.h"
#include "common/group/group_executor.h"
#include "common/group/group_shape.h"
#include "common/group/rank_hello.h"
#include "common/group/rank_socket.h"
#include "common/group/remote_ranks.h"
#include "common/group/step_ring.h"
#include "kernels/device.h"
#include "kernels/dma.h"

namespace baton {

// The followers of a worker's group, as the leader sees them: processes of the same program, on
// this host or, when mpirun started them, on others. They end with the leader. When one ends or
// fails, the whole group is broken: every wait in it ends, and status() says why.
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
  // started all ranks. Errors: as AcceptMpirunRanks.
  static StatusOr<std::unique_ptr<RankProcesses>> Start(const Options& options);
  // Kills the followers that this process started and that have not ended; tells the others to end.
  ~RankProcesses();

  // Rank 0's collectives.
  RankGroups groups() const { return collectives_->groups(); }

  // Waits until every follower has loaded its part of the model, and checks that all ranks run the
  // same. Tells them the number of KV blocks that every rank can hold, and returns it.
  // `message_bytes`: the most bytes of a step message. Errors: FailedPrecondition as
  // CheckSameGroup; a follower's own error; Unavailable when a follower has ended;
  // DeadlineExceeded naming the rank that is late.
  StatusOr<int32_t> Agree(const RankHello& ours, size_t message_bytes);
  // Waits until every follower has its arena, and maps the arenas of this host. From then on the
  // followers wait for steps. `dma` is that of rank 0's device, null for host memory; the arenas of
  // GPUs are imported, so that rank 0's device copies all of the KV on this host.
  StatusOr<std::vector<FollowerArena>> TakeArenas(Dma* dma);

  // The hash of all weights of the model: the sum of what the ranks hashed. After Agree.
  const Hash128& weights_hash() const { return weights_hash_; }

  StepRing& ring() { return *ring_; }
  // The followers on other hosts; null when there are none. Lives as long as this object.
  RemoteRanks* remote() { return remote_.get(); }
  // By rank: the lowest rank of the same host. Empty when all ranks are on one host.
  std::vector<int> first_on_host() const;
  // For waits on the ring: they end when the group is broken.
  StepRing::Waiting waiting() const;
  // OK while every rank lives and works.
  Status status() const;

 private:
  struct Follower {
    std::unique_ptr<ChildProcess> process;  // null when mpirun started it
    std::optional<RankSocket> socket;       // nothing when it is on another host
  };

  explicit RankProcesses(const Options& options) : options_(options) {}
  Status Launch(int rank);
  // Takes the followers that mpirun started.
  Status Accept();
  RankLink& LinkTo(int rank);
  // What became of a follower that closed its socket.
  std::string DescribeExit(Follower& follower) const;
  // Says in the log for which follower the group has waited so long.
  static void TellWait(int rank, const Follower& follower, Duration waited);
  // The next message of a follower that is still starting.
  StatusOr<RankLink::Message> ReceiveFrom(int rank);
  // Looks for followers that end or report an error, and for an mpirun that ends, which leaves its
  // ranks behind, or is stopped; and shows the followers that this process lives.
  void Watch(const std::stop_token& stop);
  void WatchMpirun(Time now);
  void WatchRemote();
  void Break(int rank, std::string_view reason);

  const Options options_;
  pid_t mpirun_ = 0;                    // the process that started all ranks; 0 when it is this one
  std::optional<Time> mpirun_stopped_;  // since when, of the thread
  std::unique_ptr<MpiWorld> world_;     // null when all ranks are on this host
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<RankCollectives> collectives_;
  std::vector<Follower> followers_;  // follower i is rank i + 1
  Hash128 weights_hash_;
  std::unique_ptr<StepRing> ring_;
  std::unique_ptr<RemoteRanks> remote_;
  std::jthread watch_;
};

}  // namespace baton
