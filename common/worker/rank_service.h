#pragma once

#include "common/base/unique_fd.h"
#include "proto/config.pb.h"

namespace baton {

// The whole life of a follower's process: loads its part of the model and computes what the leader
// publishes, until the leader ends. `socket` is the end of the leader's RankSocket. Returns the
// exit status: 1 after an error, which the leader has been told. One function for each program.
int RunPrefillRank(const config::WorkerConfig& config, UniqueFd socket);
int RunDecodeRank(const config::WorkerConfig& config, UniqueFd socket);

}  // namespace baton
