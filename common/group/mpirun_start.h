#pragma once

#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/group/rank_socket.h"

// The start of a group whose ranks `mpirun` started on one host: the followers find their leader,
// and everything else goes as when the leader has started them. OpenMPI only carries the address of
// the leader.
namespace baton {

// On rank 0: waits until every other rank has connected. Entry i is the socket to rank i + 1.
// `ranks` is what the configuration says. Errors: InvalidArgument when mpirun started another
// number of ranks; Unimplemented when they are on several hosts; NotFound when OpenMPI or
// libbaton_mpi.so is missing; DeadlineExceeded naming the ranks that have not come.
StatusOr<std::vector<RankSocket>> AcceptMpirunRanks(int ranks, Duration limit);

// On another rank: connects to rank 0. Errors as above.
StatusOr<RankSocket> ConnectToMpirunLeader(int ranks, Duration limit);

}  // namespace baton
