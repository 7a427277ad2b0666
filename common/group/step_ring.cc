#include "common/group/step_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/futex.h"
#include "common/base/shared_memory.h"

namespace baton {
namespace {

constexpr uint64_t kMagic = 0x31474e4952505453;  // "STPRING1"
constexpr size_t kLine = 64;                     // bytes of a cache line
constexpr int kMaxFollowers = 1023;
constexpr size_t kMaxMessageBytes = size_t{1} << 32;
constexpr Duration kCheckEvery = std::chrono::milliseconds(5);  // calls of Waiting::broken
// The longest sleep, after which the wait looks whether the group is broken: each costs an idle
// rank about 50 µs.
constexpr Duration kLongestSleep = std::chrono::milliseconds(50);

size_t RoundUp(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

Status SystemError(std::string_view call) {
  return MakeStatus(StatusCode::kInternal, "step ring: {}: {}", call, std::strerror(errno));
}

// A follower ends a message soon after the leader has its results. A yield would cost the leader a
// time slice when other threads are runnable.
constexpr Duration kSpin = std::chrono::microseconds(30);

// Waits until `done()`: busy-polls, then yields, then sleeps.
template <class Done, class Sleep>
Status WaitFor(const StepRing::Waiting& waiting,
               Duration limit,
               const Done& done,
               const Sleep& sleep,
               bool& reached) {
  const SteadyClock clock;
  const Time begin = clock.Now();
  Time checked = begin;
  reached = true;
  while (!done()) {
    const Time now = clock.Now();
    if (now - begin >= limit) {
      reached = false;
      return OkStatus();
    }
    if (now - checked >= kCheckEvery) {
      checked = now;
      BATON_RETURN_IF_ERROR(waiting.broken());
    }
    if (now - begin < std::min(kSpin, waiting.busy_poll)) continue;
    if (now - begin < waiting.busy_poll) {
      std::this_thread::yield();
    } else {
      sleep(std::min(limit - (now - begin), kLongestSleep));
    }
  }
  return OkStatus();
}

}  // namespace

// The start of the shared memory. `Ended` of every follower and the slots follow. Words that
// different sides write are in cache lines of their own. `published` releases a slot to the
// followers, which acquire it; Ended::count releases the slot to the leader, which acquires it
// before it writes another message there (docs/memory_ordering.md).
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct StepRing::Shared {
  uint64_t magic = 0;
  uint64_t message_bytes = 0;
  uint32_t followers = 0;
  alignas(kLine) std::atomic<uint64_t> published{0};
  uint32_t turn = 0;  // changes with every message: followers sleep on it
  alignas(kLine) std::atomic<uint32_t> sleepers{0};
  alignas(kLine) std::atomic<uint64_t> beats{0};
};

struct StepRing::Slot {
  alignas(kLine) uint64_t bytes = 0;
};

// The messages that one follower has ended, and its times. The times are for operators: the leader
// may read them while the follower changes them.
struct StepRing::Ended {
  alignas(kLine) std::atomic<uint64_t> count{0};
  std::atomic<int64_t> steps{0};
  std::atomic<double> step_seconds{0};
  std::atomic<double> exchange_seconds{-1};  // negative: unset
};

// The bytes of a slot and of a whole ring.
size_t StepRing::SlotBytes(size_t message_bytes) {
  return sizeof(Slot) + RoundUp(message_bytes, kLine);
}

size_t StepRing::RingBytes(size_t followers, size_t message_bytes) {
  return sizeof(Shared) + sizeof(Ended) * followers + kSlots * SlotBytes(message_bytes);
}

StatusOr<std::unique_ptr<StepRing>> StepRing::Create(int followers, size_t message_bytes) {
  BATON_CHECK(followers >= 1 && followers <= kMaxFollowers, "{} followers", followers);
  BATON_CHECK(message_bytes <= kMaxMessageBytes, "messages of {} bytes", message_bytes);
  const size_t bytes = RingBytes(static_cast<size_t>(followers), message_bytes);
  UniqueFd fd(::memfd_create("baton-steps", MFD_CLOEXEC));
  if (!fd.valid()) return SystemError("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return SystemError("ftruncate");
  BATON_ASSIGN_OR_RETURN(const std::span<std::byte> base, MapSharedMemory(fd, bytes));
  auto* shared = new (base.data()) Shared();
  for (int i = 0; i < followers; ++i) new (reinterpret_cast<Ended*>(shared + 1) + i) Ended();
  shared->message_bytes = message_bytes;
  shared->followers = static_cast<uint32_t>(followers);
  shared->magic = kMagic;
  return std::unique_ptr<StepRing>(new StepRing(std::move(fd), base.data(), base.size()));
}

StatusOr<std::unique_ptr<StepRing>> StepRing::Open(UniqueFd fd) {
  BATON_ASSIGN_OR_RETURN(const std::span<std::byte> base, MapSharedMemory(fd, sizeof(Shared)));
  const size_t bytes = base.size();
  std::unique_ptr<StepRing> ring(new StepRing(std::move(fd), base.data(), bytes));
  const Shared& shared = ring->shared_;
  const size_t expected = RingBytes(shared.followers, shared.message_bytes);
  if (shared.magic != kMagic || shared.message_bytes > kMaxMessageBytes || expected != bytes) {
    return InvalidArgument(
        "step ring: descriptor {} of {} bytes is not a step ring", ring->fd(), bytes);
  }
  return ring;
}

StepRing::StepRing(UniqueFd fd, std::byte* base, size_t bytes)
    : fd_(std::move(fd)), base_(base), bytes_(bytes), shared_(*reinterpret_cast<Shared*>(base)) {}

StepRing::~StepRing() {
  ::munmap(base_, bytes_);
}

int StepRing::followers() const {
  return static_cast<int>(shared_.followers);
}

size_t StepRing::message_bytes() const {
  return shared_.message_bytes;
}

StepRing::Slot& StepRing::SlotOf(uint64_t number) const {
  std::byte* const slots = base_ + sizeof(Shared) + sizeof(Ended) * shared_.followers;
  return *reinterpret_cast<Slot*>(slots + number % kSlots * SlotBytes(shared_.message_bytes));
}

std::byte* StepRing::DataOf(uint64_t number) const {
  return reinterpret_cast<std::byte*>(&SlotOf(number) + 1);
}

StatusOr<std::span<std::byte>> StepRing::Prepare(size_t bytes,
                                                 const Waiting& waiting,
                                                 Duration limit) {
  if (bytes > shared_.message_bytes) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "a step of {} bytes does not fit into the group's messages of {} bytes",
                      bytes,
                      shared_.message_bytes);
  }
  const uint64_t number = published_ + 1;
  if (number > kSlots) BATON_RETURN_IF_ERROR(WaitEnded(number - kSlots, waiting, limit));
  SlotOf(number).bytes = bytes;
  return std::span(DataOf(number), bytes);
}

void StepRing::Publish() {
  ++published_;
  // All sequentially consistent: either this sees a sleeper, or the sleeper sees the turn, and with
  // it the message.
  shared_.published.store(published_);
  std::atomic_ref(shared_.turn).store(static_cast<uint32_t>(published_));
  if (shared_.sleepers.load() > 0) FutexWake(shared_.turn);
}

StepRing::Ended* StepRing::ended() const {
  return reinterpret_cast<Ended*>(base_ + sizeof(Shared));
}

bool StepRing::HasEnded(uint64_t number) const {
  return std::ranges::all_of(std::span(ended(), shared_.followers), [&](const Ended& follower) {
    return follower.count.load(std::memory_order_acquire) >= number;
  });
}

Status StepRing::WaitEnded(uint64_t number, const Waiting& waiting, Duration limit) {
  const Ended* const by_follower = ended();
  uint32_t late = 0;
  bool reached = false;
  const auto all = [&] {
    while (late < shared_.followers &&
           by_follower[late].count.load(std::memory_order_acquire) >= number) {
      ++late;
    }
    return late == shared_.followers;
  };
  const auto sleep = [](Duration) { std::this_thread::sleep_for(std::chrono::microseconds(50)); };
  BATON_RETURN_IF_ERROR(WaitFor(waiting, limit, all, sleep, reached));
  if (reached) return OkStatus();
  return MakeStatus(StatusCode::kDeadlineExceeded,
                    "rank {} has not ended step {} within {:.1f} s",
                    late + 1,
                    number,
                    ToSeconds(limit));
}

void StepRing::Beat() {
  shared_.beats.fetch_add(1);
}

uint64_t StepRing::beats() const {
  return shared_.beats.load();
}

StatusOr<std::optional<std::span<const std::byte>>> StepRing::Next(const Waiting& waiting,
                                                                   Duration timeout) {
  const uint64_t number = read_ + 1;
  const auto there = [&] { return shared_.published.load(std::memory_order_acquire) >= number; };
  const auto sleep = [&](Duration most) {
    shared_.sleepers.fetch_add(1);
    const uint32_t turn = std::atomic_ref(shared_.turn).load();
    if (!there()) FutexWait(shared_.turn, turn, most);
    shared_.sleepers.fetch_sub(1);
  };
  bool reached = false;
  BATON_RETURN_IF_ERROR(WaitFor(waiting, timeout, there, sleep, reached));
  if (!reached) return std::optional<std::span<const std::byte>>();
  const uint64_t bytes = SlotOf(number).bytes;
  if (bytes > shared_.message_bytes) {
    return MakeStatus(StatusCode::kInternal, "step {} has {} bytes in the ring", number, bytes);
  }
  read_ = number;
  return std::optional(std::span<const std::byte>(DataOf(number), bytes));
}

void StepRing::End(int follower, const RankTimes& times) {
  SetEnded(follower, ++ended_, times);
}

void StepRing::SetEnded(int follower, uint64_t count, const RankTimes& times) {
  Ended& ended = this->ended()[follower];
  ended.steps.store(times.steps, std::memory_order_relaxed);
  ended.step_seconds.store(times.step_seconds, std::memory_order_relaxed);
  ended.exchange_seconds.store(times.exchange_seconds.value_or(-1), std::memory_order_relaxed);
  ended.count.store(count, std::memory_order_release);
}

RankTimes StepRing::times(int follower) const {
  const Ended& ended = this->ended()[follower];
  RankTimes times;
  times.steps = ended.steps.load(std::memory_order_relaxed);
  times.step_seconds = ended.step_seconds.load(std::memory_order_relaxed);
  const double exchange = ended.exchange_seconds.load(std::memory_order_relaxed);
  if (exchange >= 0) times.exchange_seconds = exchange;
  return times;
}

}  // namespace baton
