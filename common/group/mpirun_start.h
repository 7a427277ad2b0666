#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/collective/group_memory.h"
#include "common/collective/mpi_world.h"
#include "common/group/group_shape.h"
#include "common/group/rank_socket.h"

// The start of a group whose ranks `mpirun` started. On each host, the ranks share memory. The
// followers on the leader's host connect to it by local sockets; then everything goes as when the
// leader has started them, and if all ranks are on one host, MPI is not used any more. The others
// reach the leader by letters of MPI (RemoteRanks, RemoteLeader).
namespace baton {

struct MpirunLeader {
  // Null when all ranks are on one host. Must outlive everything that uses it.
  std::unique_ptr<MpiWorld> world;
  // Entry i is the socket to rank i + 1; nothing if that rank is on another host.
  std::vector<std::optional<RankSocket>> sockets;
};

struct MpirunFollower {
  std::unique_ptr<MpiWorld> world;      // as above
  std::optional<RankSocket> leader;     // nothing if the leader is on another host
  std::unique_ptr<GroupMemory> memory;  // of the ranks on this host, if the leader is on another
};

// On rank 0: waits until every other rank has come; while it waits for ranks of this host, it calls
// `tell` as ReceiveAndTell does, with their numbers. Errors: InvalidArgument when mpirun started
// another number of ranks than `shape` has; NotFound when OpenMPI or libbaton_mpi.so is missing;
// DeadlineExceeded naming the ranks that have not come.
StatusOr<MpirunLeader> AcceptMpirunRanks(
    const GroupShape& shape,
    Duration limit,
    const std::function<void(const std::string& ranks, Duration waited)>& tell);

// On another rank: finds rank 0. Errors as above.
StatusOr<MpirunFollower> ConnectToMpirunLeader(const GroupShape& shape, Duration limit);

}  // namespace baton
