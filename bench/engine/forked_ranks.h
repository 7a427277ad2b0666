#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "bench/engine/issue_times.h"
#include "common/base/status.h"
#include "common/engine/executor.h"
#include "common/group/group_shape.h"
#include "common/group/step_ring.h"

namespace baton {

// The ranks of a group, as processes that this process forks. The processes end with it.
class ForkedRanks final {
 public:
  // Forks ranks 1, 2, …: returns in every process. No thread may run before.
  static StatusOr<std::unique_ptr<ForkedRanks>> Start(const GroupShape& shape);

  int rank() const { return rank_; }
  RankGroups groups() const { return collectives_->groups(); }
  // On rank 0.
  StepRing& ring() { return *ring_; }
  IssueTimes& issue_times() { return *issue_times_; }
  // On rank 0: the processor time that each rank has used, in seconds.
  std::vector<double> CpuSeconds() const;
  // On the other ranks: computes the steps of rank 0.
  Status Follow(Executor& executor);

 private:
  ForkedRanks() = default;

  int rank_ = 0;
  std::vector<pid_t> ranks_;  // on rank 0: the processes, by rank
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<StepRing> ring_;
  std::unique_ptr<IssueTimes> issue_times_;
  std::unique_ptr<RankCollectives> collectives_;
};

}  // namespace baton
