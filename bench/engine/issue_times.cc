#include "bench/engine/issue_times.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

namespace baton {

struct IssueTimes::OfRank {
  std::atomic<uint64_t> steps = 0;
  std::array<std::atomic<int64_t>, kSteps> times = {};  // by step % kSteps, in ticks of Time
};

StatusOr<std::unique_ptr<IssueTimes>> IssueTimes::Create(int ranks) {
  const size_t bytes = sizeof(OfRank) * static_cast<size_t>(ranks);
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return MakeStatus(StatusCode::kResourceExhausted, "mmap of {} bytes failed", bytes);
  }
  auto* const first = static_cast<OfRank*>(memory);
  for (int rank = 0; rank < ranks; ++rank) new (first + rank) OfRank();
  return std::unique_ptr<IssueTimes>(new IssueTimes(first, ranks));
}

IssueTimes::~IssueTimes() {
  ::munmap(ranks_, sizeof(OfRank) * static_cast<size_t>(count_));
}

void IssueTimes::Add(int rank, Time at) {
  OfRank& own = ranks_[rank];
  const uint64_t step = own.steps.load();
  own.times[step % kSteps] = at.time_since_epoch().count();
  own.steps = step + 1;
}

uint64_t IssueTimes::steps(int rank) const {
  return ranks_[rank].steps;
}

std::optional<Duration> IssueTimes::LagOf(uint64_t step) const {
  int64_t last = 0;
  for (int rank = 0; rank < count_; ++rank) {
    const uint64_t steps = ranks_[rank].steps;
    if (step >= steps || step + kSteps <= steps) return std::nullopt;
    if (rank > 0) last = std::max<int64_t>(last, ranks_[rank].times[step % kSteps]);
  }
  return Duration(last - ranks_[0].times[step % kSteps]);
}

}  // namespace baton
