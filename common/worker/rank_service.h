#pragma once

#include <optional>

#include "common/base/unique_fd.h"
#include "proto/config.pb.h"

namespace baton {

// The whole life of a follower's process: loads its part of the model and computes what the leader
// publishes, until the leader ends. `socket` is the end of the leader's RankSocket; when it is not
// valid and mpirun started this process as another rank than 0, the process looks for its leader.
// Returns the exit status: 1 after an error, which the leader has been told. Returns nothing when
// this process is a leader. One function for each program.
std::optional<int> RunPrefillRank(const config::WorkerConfig& config, UniqueFd socket);
std::optional<int> RunDecodeRank(const config::WorkerConfig& config, UniqueFd socket);

}  // namespace baton
