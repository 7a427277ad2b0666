// How long a plan of a step takes from the leader of a group to its followers.
//   step_ring_bench [followers = 1] [rows = 64] [repeat = 5]
// prints a line of JSON for each repeat: p50 and p99 in microseconds from the moment before the
// leader encodes a step of `rows` decoding sequences at 2,048 tokens to the moment after the last
// follower has decoded it. The followers are processes that busy-poll, as they do between the steps
// of a busy worker.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "common/base/check.h"
#include "common/base/quantile.h"
#include "common/group/step_message.h"
#include "common/group/step_ring.h"

namespace baton {
namespace {

constexpr int kSteps = 4000;
constexpr int kMaxFollowers = 16;
constexpr int32_t kBlocks = 2048 / 16;
constexpr Duration kLimit = std::chrono::seconds(10);
constexpr Duration kPause = std::chrono::microseconds(150);  // the rest of a step
const StepRing::Waiting kAwake = {.busy_poll = kLimit};

// When each follower had decoded the last step; the clock is the same in all processes.
struct Arrivals {
  std::atomic<int64_t> at[kMaxFollowers];
};

int64_t Now() {
  return SteadyClock().Now().time_since_epoch().count();
}

[[noreturn]] void Follow(UniqueFd fd, int follower, Arrivals& arrivals) {
  const auto ring = StepRing::Open(std::move(fd)).value();
  for (int i = 0; i < kSteps; ++i) {
    const auto bytes = ring->Next(kAwake, kLimit);
    BATON_CHECK(bytes.ok() && bytes->has_value(), "no step within the limit");
    BATON_CHECK(DecodeStep(**bytes).ok(), "a step cannot be decoded");
    arrivals.at[follower] = Now();
    ring->End(follower);
  }
  ::_exit(0);
}

void Run(int followers, int rows) {
  const std::vector<int32_t> numbers(rows, 1);
  const std::vector<SequenceRows> sequences(rows, SequenceRows{0, 1, 2047, 0});
  const std::vector<int32_t> tables(static_cast<size_t>(rows) * kBlocks, 1);
  const StepInput step{numbers, numbers, sequences, tables, numbers};
  const size_t bytes = StepMessageBytes(step, {});
  const auto ring = StepRing::Create(followers, bytes).value();
  void* memory =
      ::mmap(nullptr, sizeof(Arrivals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BATON_CHECK(memory != MAP_FAILED, "no memory");
  auto& arrivals = *new (memory) Arrivals();
  for (int i = 0; i < followers; ++i) {
    if (::fork() == 0) Follow(UniqueFd(::dup(ring->fd())), i, arrivals);
  }
  std::vector<double> micros;
  for (uint64_t number = 1; number <= kSteps; ++number) {
    const int64_t begin = Now();
    const auto to = ring->Prepare(bytes, kAwake, kLimit);
    BATON_CHECK(to.ok(), "the ring is full");
    EncodeStep({number, step, {}}, *to);
    ring->Publish();
    BATON_CHECK(ring->WaitEnded(number, kAwake, kLimit).ok(), "a follower is late");
    int64_t last = 0;
    for (int i = 0; i < followers; ++i) last = std::max<int64_t>(last, arrivals.at[i]);
    micros.push_back(static_cast<double>(last - begin) / 1e3);
    for (const int64_t until = Now() + kPause.count(); Now() < until;) {
    }
  }
  while (::wait(nullptr) > 0) {
  }
  ::munmap(memory, sizeof(Arrivals));
  fmt::print(
      R"({{"bench":"step_ring","followers":{},"rows":{},"bytes":{},"p50_us":{:.2f},"p99_us":{:.2f}}})"
      "\n",
      followers,
      rows,
      bytes,
      Quantile(micros, 0.5),
      Quantile(micros, 0.99));
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const auto number = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  const int followers = number(1, 1);
  BATON_CHECK(followers >= 1 && followers <= baton::kMaxFollowers, "1 to 16 followers");
  for (int i = 0; i < number(3, 5); ++i) baton::Run(followers, number(2, 64));
}
