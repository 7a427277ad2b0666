#pragma once

#include "common/base/unique_fd.h"
#include "common/worker/config_wire.h"
#include "proto/config.pb.h"

namespace baton {

// The whole life of a follower's process: loads its part of the model and computes what the leader
// publishes, until the leader ends. `socket` is the end of the leader's RankSocket. Returns the
// exit status: 1 after an error, which the leader has been told.
int RunRank(const config::WorkerConfig& config, WorkerKind kind, UniqueFd socket);

}  // namespace baton
