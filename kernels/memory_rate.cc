#include "kernels/memory_rate.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/thread.h"

namespace baton {
namespace {

constexpr size_t kMinBytes = size_t{64} << 20;
constexpr size_t kMaxBytes = size_t{256} << 20;
constexpr int kPasses = 4;
constexpr size_t kPageBytes = size_t{2} << 20;  // a huge page
constexpr int kMaxThreads = 64;

struct Free {
  void operator()(uint64_t* memory) const { std::free(memory); }
};

// The size of all parts together: twice the largest cache, where the system tells its size.
size_t TotalBytes() {
  const long cache = std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::clamp(2 * static_cast<size_t>(cache), kMinBytes, kMaxBytes);
}

// Four sums, so that additions do not wait for each other.
uint64_t Sum(const uint64_t* words, size_t count) {
  uint64_t sums[4] = {};
  for (size_t i = 0; i + 4 <= count; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) sums[lane] += words[i + lane];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

// Sets `slowest` to `time` if that is more.
void Raise(std::atomic<double>& slowest, double time) {
  double before = slowest;
  while (before < time && !slowest.compare_exchange_weak(before, time)) {
  }
}

}  // namespace

Duration ThreadProcessorTime() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

double MeasureMemoryRate(int threads, const std::function<Duration()>& processor_time) {
  threads = std::clamp(threads, 1, kMaxThreads);
  const size_t pages =
      std::max<size_t>(1, TotalBytes() / kPageBytes / static_cast<size_t>(threads));
  const size_t words = pages * kPageBytes / sizeof(uint64_t);
  std::barrier together(threads);
  std::atomic<uint64_t> used = 0;                      // so that no read is left out
  std::array<std::atomic<double>, kPasses> slowest{};  // seconds of each pass
  const auto run = [&] {
    // Each thread writes its own part, so that the part is on its own memory node.
    const std::unique_ptr<uint64_t[], Free> part(
        static_cast<uint64_t*>(std::aligned_alloc(kPageBytes, words * sizeof(uint64_t))));
    if (part == nullptr) return together.arrive_and_drop();
    // Else the first pass over 64 MiB takes 0.2 s on some virtual machines.
    (void)::madvise(part.get(), words * sizeof(uint64_t), MADV_HUGEPAGE);
    std::fill_n(part.get(), words, uint64_t{1});
    for (int pass = 0; pass < kPasses; ++pass) {
      together.arrive_and_wait();
      const Duration begin = processor_time();
      used += Sum(part.get(), words);
      Raise(slowest[static_cast<size_t>(pass)], ToSeconds(processor_time() - begin));
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) {
    others.push_back(StartThread("memory-rate", [&](const std::stop_token&) { run(); }));
  }
  run();
  others.clear();
  const double seconds = *std::ranges::min_element(slowest);
  const size_t bytes = words * sizeof(uint64_t) * static_cast<size_t>(threads);
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

}  // namespace baton
