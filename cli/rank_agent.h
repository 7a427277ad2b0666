#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/peer_proof.h"
#include "common/base/status.h"

// How mpirun starts the ranks of a worker on other hosts without ssh: on each host an agent waits
// for a connection that proves the cluster's secret, and runs OpenMPI's daemon, which starts the
// ranks. The agent runs no other program.
namespace baton {

// The agent. Waits at `listen` and serves one connection after another, until `stopped` returns
// true. `stopped` is asked every 0.1 s, but not while a daemon runs, so that a worker can drain.
// Ends the daemon when its connection ends. `ready` is called with the address. Errors: the address
// cannot be listened on.
Status ServeRanks(const std::string& listen,
                  const PeerProofs& proofs,
                  const std::function<void(const std::string& address)>& ready,
                  const std::function<bool()>& stopped);

// mpirun's end: lets the agent at `address` run `command`, as mpirun gives it to its remote shell:
// the name of the daemon and its arguments, some of them in double quotes. Tries to connect for
// `limit`, because the agent may start later. Returns the daemon's exit status. Errors:
// DeadlineExceeded; Unauthenticated when the agent has another secret; Unavailable when the
// connection or the agent ended before the daemon; InvalidArgument when the agent refuses the
// command.
StatusOr<int> RunOnHost(const std::string& address,
                        const PeerProofs& proofs,
                        const std::vector<std::string>& command,
                        Duration limit);

}  // namespace baton
