// The latency of an exchange between ranks that are processes of this host. Each rank sends a
// number of bytes and has the bytes of all ranks afterwards.
//   collective_bench [ranks = 2] [repeat = 5]
// prints a line of JSON for each size: p50 and p99 in microseconds of AllGather over shared memory,
// and of a raw loop that only copies, sets a flag and polls flags, in alternating runs. `ratio` is
// p50 / raw p50. The raw loop has no limit and no abort and is run with two ranks only.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/quantile.h"
#include "common/collective/shm_collective.h"

namespace baton {
namespace {

constexpr std::array<size_t, 3> kSizes = {size_t{8} << 10, size_t{64} << 10, size_t{1} << 20};
constexpr size_t kMaxBytes = kSizes.back();

// Two buffers of each rank, and flags that state the last exchange that a buffer holds.
struct RawMemory {
  struct alignas(64) Flag {
    std::atomic<uint32_t> turn{0};
  };
  std::array<std::array<Flag, 2>, 2> flags;
  alignas(64) std::array<std::array<std::array<std::byte, kMaxBytes>, 2>, 2> bytes;
};

void RawExchange(RawMemory& memory, int rank, uint32_t turn, std::span<std::byte> rows) {
  const size_t bytes = rows.size() / 2;
  const int other = 1 - rank;
  std::memcpy(memory.bytes[rank][turn % 2].data(), rows.data() + rank * bytes, bytes);
  memory.flags[rank][turn % 2].turn.store(turn, std::memory_order_release);
  while (memory.flags[other][turn % 2].turn.load(std::memory_order_acquire) != turn) {
  }
  std::memcpy(rows.data() + other * bytes, memory.bytes[other][turn % 2].data(), bytes);
}

// The times of `count` calls in microseconds.
std::vector<double> Measure(int count, const std::function<void()>& call) {
  const SteadyClock clock;
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const Time start = clock.Now();
    call();
    times.push_back(ToSeconds(clock.Now() - start) * 1e6);
  }
  return times;
}

void PrintResult(size_t bytes,
                 int ranks,
                 const std::vector<double>& times,
                 const std::vector<double>& raw) {
  fmt::print(
      "{{\"benchmark\": \"collective\", \"call\": \"all_gather\", \"ranks\": {}, \"bytes\": {}, "
      "\"p50_us\": {:.2f}, \"p99_us\": {:.2f}",
      ranks,
      bytes,
      Median(times),
      Quantile(times, 0.99));
  if (!raw.empty()) {
    fmt::print(", \"raw_p50_us\": {:.2f}, \"raw_p99_us\": {:.2f}, \"ratio\": {:.2f}",
               Median(raw),
               Quantile(raw, 0.99),
               Median(times) / Median(raw));
  }
  fmt::print("}}\n");
  std::fflush(stdout);
}

// All ranks run the same calls; rank 0 prints.
void RunRank(GroupMemory& memory, RawMemory& raw_memory, int rank, int ranks, int repeat) {
  const auto group = ShmCollective::Create(memory, 0, rank, {});
  BATON_CHECK(group.ok(), "{}", Message(group.status()));
  uint32_t turn = 0;
  for (const size_t bytes : kSizes) {
    std::vector<std::byte> rows(bytes * ranks);
    std::vector<size_t> ends;
    for (int i = 1; i <= ranks; ++i) ends.push_back(i * bytes);
    const auto exchange = [&] {
      const Status status = (*group)->AllGather({rows.data(), 1, rows.size()}, ends);
      BATON_CHECK(status.ok(), "{}", Message(status));
    };
    const int count = static_cast<int>((size_t{64} << 20) / bytes);
    std::vector<double> times;
    std::vector<double> raw;
    Measure(count / 4, exchange);
    for (int i = 0; i < repeat; ++i) {
      if (ranks == 2) {
        const auto run = Measure(count, [&] { RawExchange(raw_memory, rank, ++turn, rows); });
        raw.insert(raw.end(), run.begin(), run.end());
      }
      const auto run = Measure(count, exchange);
      times.insert(times.end(), run.begin(), run.end());
    }
    if (rank == 0) PrintResult(bytes, ranks, times, raw);
  }
}

int Main(std::span<char*> args) {
  const int ranks = args.size() > 1 ? std::atoi(args[1]) : 2;
  const int repeat = args.size() > 2 ? std::atoi(args[2]) : 5;
  GroupLayout layout = {.ranks = ranks, .collectives = {{}}};
  for (int rank = 0; rank < ranks; ++rank) layout.collectives[0].ranks.push_back(rank);
  const auto memory = GroupMemory::Create(layout);
  if (!memory.ok()) {
    fmt::print(stderr, "{}\n", Message(memory.status()));
    return 2;
  }
  void* const raw =
      ::mmap(nullptr, sizeof(RawMemory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BATON_CHECK(raw != MAP_FAILED, "no memory for the raw loop");
  auto& raw_memory = *new (raw) RawMemory;
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    BATON_CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
      RunRank(**memory, raw_memory, rank, ranks, repeat);
      ::_exit(0);
    }
  }
  RunRank(**memory, raw_memory, 0, ranks, repeat);
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main({argv, static_cast<size_t>(argc)});
}
