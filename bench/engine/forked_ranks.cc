#include "bench/engine/forked_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "bench/engine/step_meter.h"
#include "common/group/follower.h"

namespace baton {
namespace {

constexpr size_t kMessageBytes = size_t{1} << 24;

}  // namespace

StatusOr<std::unique_ptr<ForkedRanks>> ForkedRanks::Start(const GroupShape& shape) {
  std::unique_ptr<ForkedRanks> self(new ForkedRanks());
  BATON_ASSIGN_OR_RETURN(self->memory_, GroupMemory::Create(shape.layout()));
  BATON_ASSIGN_OR_RETURN(self->ring_, StepRing::Create(shape.ranks() - 1, kMessageBytes));
  BATON_ASSIGN_OR_RETURN(self->issue_times_, IssueTimes::Create(shape.ranks()));
  const pid_t leader = ::getpid();
  self->ranks_.push_back(leader);
  for (int rank = 1; rank < shape.ranks() && self->rank_ == 0; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) return MakeStatus(StatusCode::kInternal, "fork failed");
    if (child > 0) {
      self->ranks_.push_back(child);
      continue;
    }
    self->rank_ = rank;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != leader) ::_exit(1);
  }
  BATON_ASSIGN_OR_RETURN(self->collectives_,
                         RankCollectives::Create(*self->memory_, shape, self->rank_, {}));
  return self;
}

std::vector<double> ForkedRanks::CpuSeconds() const {
  std::vector<double> seconds;
  for (const pid_t rank : ranks_) {
    clockid_t clock = 0;
    timespec used{};
    if (::clock_getcpuclockid(rank, &clock) == 0) ::clock_gettime(clock, &used);
    seconds.push_back(static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9);
  }
  return seconds;
}

Status ForkedRanks::Follow(Executor& executor) {
  FollowerOptions options;
  options.follower = rank_ - 1;
  // The processes end together, so the leader gives no sign of life.
  options.leader_limit = std::chrono::hours(24);
  StepMeter meter(executor, issue_times_.get(), rank_);
  return RunFollower(meter, *ring_, options, {});
}

}  // namespace baton
