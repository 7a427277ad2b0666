#include "common/group/step_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr Duration kLimit = std::chrono::seconds(20);
constexpr Duration kSoon = std::chrono::milliseconds(30);

std::unique_ptr<StepRing> OpenCopy(const StepRing& ring) {
  return StepRing::Open(UniqueFd(::dup(ring.fd()))).value();
}

void Send(StepRing& ring, uint64_t value) {
  const auto memory = ring.Prepare(sizeof(value), {}, kLimit);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::memcpy(memory->data(), &value, sizeof(value));
  ring.Publish();
}

uint64_t ValueOf(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  EXPECT_EQ(bytes.size(), sizeof(value));
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

TEST(StepRingTest, EveryFollowerReadsEveryMessageInOrder) {
  constexpr int kFollowers = 3;
  constexpr uint64_t kMessages = 2000;
  const auto ring = StepRing::Create(kFollowers, 64).value();
  std::vector<std::jthread> threads;
  std::atomic<uint64_t> read{0};
  for (int i = 0; i < kFollowers; ++i) {
    threads.emplace_back([&, i] {
      const auto mine = OpenCopy(*ring);
      for (uint64_t expected = 1; expected <= kMessages;) {
        const auto bytes = mine->Next({}, kSoon);
        ASSERT_TRUE(bytes.ok()) << bytes.status();
        if (!bytes->has_value()) continue;
        ASSERT_EQ(ValueOf(**bytes), expected);
        ++expected;
        ++read;
        mine->End(i);
      }
    });
  }
  for (uint64_t value = 1; value <= kMessages; ++value) {
    Send(*ring, value);
    // Sometimes all followers sleep, and sometimes the ring is full.
    if (value % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  const Status ended = ring->WaitEnded(kMessages, {}, kLimit);
  EXPECT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(read, kFollowers * kMessages);
}

TEST(StepRingTest, TheLeaderWaitsForTheFollowerThatIsLate) {
  const auto ring = StepRing::Create(2, 64).value();
  const auto first = OpenCopy(*ring);
  for (uint64_t i = 1; i <= StepRing::kSlots; ++i) {
    Send(*ring, i);
    ASSERT_TRUE((*first->Next({}, kLimit)).has_value());
    first->End(0);
  }
  const auto full = ring->Prepare(8, {}, kSoon);
  EXPECT_EQ(full.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Message(full.status()), "rank 2 has not ended step 1 within 0.0 s");
}

TEST(StepRingTest, TheLeaderReadsTheTimesOfEachFollower) {
  const auto ring = StepRing::Create(2, 64).value();
  const auto second = OpenCopy(*ring);
  EXPECT_EQ(ring->times(1), RankTimes());
  const RankTimes times = {.steps = 3, .step_seconds = 0.5, .exchange_seconds = 0.125};
  Send(*ring, 1);
  ASSERT_TRUE(second->Next({}, kLimit).ok());
  second->End(1, times);
  EXPECT_EQ(ring->times(0), RankTimes());
  EXPECT_EQ(ring->times(1), times);
}

TEST(StepRingTest, AMessageThatIsTooLongIsRefused) {
  const auto ring = StepRing::Create(1, 64).value();
  const auto memory = ring->Prepare(65, {}, kLimit);
  EXPECT_EQ(Message(memory.status()),
            "a step of 65 bytes does not fit into the group's messages of 64 bytes");
}

TEST(StepRingTest, ABrokenGroupEndsEveryWait) {
  const auto ring = StepRing::Create(1, 64).value();
  const StepRing::Waiting broken{
      .broken = [] { return Status(StatusCode::kUnavailable, "rank 1 is gone"); }};
  Send(*ring, 1);
  EXPECT_EQ(Message(ring->WaitEnded(1, broken, kLimit)), "rank 1 is gone");
  const auto follower = OpenCopy(*ring);
  ASSERT_TRUE((*follower->Next(broken, kLimit)).has_value());
  follower->End(0);
  EXPECT_EQ(Message(follower->Next(broken, kLimit).status()), "rank 1 is gone");
}

TEST(StepRingTest, BeatsAreSeenByFollowers) {
  const auto ring = StepRing::Create(1, 64).value();
  const auto follower = OpenCopy(*ring);
  EXPECT_EQ(follower->beats(), 0U);
  ring->Beat();
  EXPECT_EQ(follower->beats(), 1U);
}

TEST(StepRingTest, AnotherFileIsNotARing) {
  UniqueFd empty(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_FALSE(StepRing::Open(UniqueFd(::dup(empty.get()))).ok());
  ASSERT_EQ(::ftruncate(empty.get(), 1 << 16), 0);
  const auto zeros = StepRing::Open(UniqueFd(::dup(empty.get())));
  EXPECT_EQ(zeros.status().code(), StatusCode::kInvalidArgument);
  const auto ring = StepRing::Create(1, 64).value();
  ASSERT_EQ(::ftruncate(ring->fd(), 4096), 0);
  EXPECT_FALSE(StepRing::Open(UniqueFd(::dup(ring->fd()))).ok());
}

}  // namespace
}  // namespace baton
