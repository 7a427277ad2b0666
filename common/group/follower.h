#pragma once

#include <functional>
#include <stop_token>

#include "common/base/clock.h"
#include "common/engine/executor.h"
#include "common/group/step_ring.h"

namespace baton {

struct FollowerOptions {
  int follower = 0;  // 0 is rank 1
  StepRing::Waiting waiting = {};
  // How long the leader may show no sign of life (StepRing::Beat) before the follower gives the
  // group up. Time in which this process is suspended does not count.
  Duration leader_limit = std::chrono::seconds(60);
  // Called after each message that has ended, with the number of messages so far. May be empty.
  std::function<void(uint64_t ended, const RankTimes& times)> on_ended = {};
};

// The life of a follower: computes its part of every step that the leader publishes, until `stop`.
// Returns OK after `stop`; the error of `waiting.broken`; Unavailable when the leader shows no sign
// of life; the error of a step, or of a message that cannot be read. The caller then lets the whole
// group end.
Status RunFollower(Executor& executor,
                   StepRing& ring,
                   const FollowerOptions& options,
                   const std::stop_token& stop);

}  // namespace baton
