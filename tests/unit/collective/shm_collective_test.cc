#include "common/collective/shm_collective.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/collective/shm_runner.h"

namespace baton {
namespace {

using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Threads, CollectiveSuite, testing::Values(&ThreadRunner));
INSTANTIATE_TEST_SUITE_P(Processes, CollectiveSuite, testing::Values(&ProcessRunner));
INSTANTIATE_TEST_SUITE_P(Threads, CollectiveFailureSuite, testing::Values(&ThreadRunner));
INSTANTIATE_TEST_SUITE_P(Processes, CollectiveFailureSuite, testing::Values(&ProcessRunner));

GroupTest TestOf(int ranks, std::vector<std::vector<int>> collectives, Duration limit) {
  return {.ranks = ranks,
          .collectives = std::move(collectives),
          .options = {.limit = limit, .busy_poll = {}},
          .slot_bytes = 4096};
}

TEST(ShmCollectiveTest, AKilledRankEndsTheCallsOfTheOthersWhenTheSupervisorAborts) {
  const GroupTest test = TestOf(3, {{0, 1, 2}}, Duration::max());
  const auto memory = GroupMemory::Create(LayoutOf(test));
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 3; ++rank) {
    pids.push_back(StartRank(**memory, rank, test, [](TestRank& own) {
      std::vector<float> values(100000);
      Status status;
      while (status.ok()) status = own.collectives[0]->AllReduce(values);
      EXPECT_EQ(Message(status),
                "the group is aborted because of rank 2: killed by signal 9 (SIGKILL)");
    }));
  }
  // In the middle of the calls.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(::kill(pids[2], SIGKILL), 0);
  EXPECT_TRUE(WIFSIGNALED(WaitForExit(pids[2])));
  (*memory)->Abort(2, "killed by signal 9 (SIGKILL)");
  EXPECT_EQ(WaitForExit(pids[0]), 0);
  EXPECT_EQ(WaitForExit(pids[1]), 0);
}

// Rank 3 waits in its pipeline group for rank 2, which waits in its tensor group for rank 1, which
// waits in another pipeline group for rank 0, which never comes.
TEST(ShmCollectiveTest, TheRankAtTheEndOfAChainOfWaitsIsNamed) {
  const GroupTest test = TestOf(4, {{0, 1}, {1, 2}, {2, 3}}, std::chrono::milliseconds(500));
  GroupTest patient = test;
  patient.options.limit = Duration::max();
  const auto memory = GroupMemory::Create(LayoutOf(test));
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::vector<std::jthread> threads;
  for (int rank = 1; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      TestRank own = MakeTestRank(**memory, rank, rank == 3 ? test : patient);
      std::array<std::byte, 8> bytes = {};
      const Status status = own.collectives[rank - 1]->Receive(0, bytes);
      EXPECT_THAT(Message(status), HasSubstr("rank 0 did not come within 500 ms")) << rank;
      EXPECT_EQ(status.code(),
                rank == 3 ? StatusCode::kDeadlineExceeded : StatusCode::kUnavailable);
    });
  }
}

// Rank 1 states that it waits for rank 2, but it was stopped while it slept: nobody wakes it up.
TEST(ShmCollectiveTest, ARankThatWaitsInACircleIsNamed) {
  const GroupTest test = TestOf(3, {{0, 1, 2}}, std::chrono::milliseconds(100));
  const auto memory = GroupMemory::Create(LayoutOf(test));
  ASSERT_TRUE(memory.ok()) << memory.status();
  StoreWord((*memory)->area(0).doorbell(1).waiting_for, 1 + 2);
  StoreWord((*memory)->area(0).doorbell(2).waiting_for, 1 + 1);
  TestRank own = MakeTestRank(**memory, 0, test);
  std::array<std::byte, 8> bytes = {};
  const Status status = own.collectives[0]->Receive(1, bytes);
  EXPECT_EQ(Message(status), "rank 1 did not come within 100 ms");
}

Status AllReduceOf(Collective& group, size_t count) {
  std::vector<float> values(count);
  return group.AllReduce(values);
}

TEST(ShmCollectiveTest, OtherCallsOnAnotherRankAreFound) {
  for (const bool other_kind : {false, true}) {
    ThreadRunner()->Run(TestOf(2, {{0, 1}}, Duration::max()), [other_kind](TestRank& own) {
      Collective& group = *own.collectives[0];
      std::array<std::byte, 40> bytes = {};
      Status status = own.rank == 0 ? AllReduceOf(group, 10)
                      : other_kind  ? group.BroadcastFromFirst(bytes)
                                    : AllReduceOf(group, 9);
      if (status.ok()) status = AllReduceOf(group, 10);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_THAT(Message(status), HasSubstr("AllReduce"));
      EXPECT_THAT(Message(status), HasSubstr("the kinds and the sizes must be equal"));
      EXPECT_EQ(Message(status).find("BroadcastFromFirst") != std::string_view::npos, other_kind);
    });
  }
}

TEST(ShmCollectiveTest, SmallMessagesAreSentBeforeTheyAreReceived) {
  ThreadRunner()->Run(TestOf(2, {{0, 1}}, std::chrono::seconds(30)), [](TestRank& own) {
    std::array<std::byte, 4096> bytes = {};
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(own.collectives[0]->Send(1 - own.rank, bytes).ok());
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(own.collectives[0]->Receive(1 - own.rank, bytes).ok());
  });
}

TEST(ShmCollectiveTest, APlaceIsTakenOnceAndByItsRank) {
  const GroupTest test = TestOf(3, {{2, 0}}, Duration::max());
  const auto memory = GroupMemory::Create(LayoutOf(test));
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(Message(ShmCollective::Create(**memory, 0, 1, {}).status()),
            "rank 1 is not in collective 0, whose ranks are 2, 0");
  EXPECT_EQ(Message(ShmCollective::Create(**memory, 1, 0, {}).status()),
            "collective 1 does not exist; the group has 1");
  const auto first = ShmCollective::Create(**memory, 0, 2, {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->rank(), 0);
  EXPECT_EQ(ShmCollective::Create(**memory, 0, 2, {}).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST(BusyPollTest, IsZeroWhenTheGroupHasMoreRanksThanCpus) {
  EXPECT_EQ(BusyPollOf({}, 100000), Duration(0));
  EXPECT_EQ(BusyPollOf({}, 1), std::chrono::microseconds(50));
  EXPECT_EQ(BusyPollOf({.limit = {}, .busy_poll = Duration(7)}, 100000), Duration(7));
}

}  // namespace
}  // namespace baton
