// Runs under mpirun with three ranks. Each rank runs all tests in the same order.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/collective/group_memory.h"
#include "common/collective/mpi_world.h"
#include "common/collective/shm_collective.h"
#include "tests/unit/collective/collective_suite.h"

namespace baton {
namespace {

MpiWorld* world = nullptr;

class MpiRunner final : public GroupRunner {
 public:
  int max_ranks() const override { return world->size(); }
  bool survives_abort() const override { return false; }

  void Run(const GroupTest& test, const std::function<void(TestRank&)>& body) override {
    TestRank own = {.rank = world->rank(), .collectives = {}, .abort = {}};
    own.abort = [](int rank, const char* message) { world->Abort(rank, message); };
    for (const std::vector<int>& ranks : test.collectives) {
      const int id = 1 + next_id_++ % MpiWorld::kMaxId;
      own.collectives.push_back(nullptr);
      if (std::find(ranks.begin(), ranks.end(), own.rank) == ranks.end()) continue;
      auto made = world->MakeCollective(id, ranks, test.options);
      BATON_CHECK(made.ok(), "{}", Message(made.status()));
      own.collectives.back() = *std::move(made);
    }
    if (own.rank < test.ranks) body(own);
  }

 private:
  int next_id_ = 0;
};

GroupRunner* Runner() {
  static MpiRunner runner;
  return &runner;
}

INSTANTIATE_TEST_SUITE_P(Mpi, CollectiveSuite, testing::Values(&Runner));
// Each of these needs an mpirun of its own: the world is broken afterwards.
INSTANTIATE_TEST_SUITE_P(Mpi, CollectiveFailureSuite, testing::Values(&Runner));

TEST(MpiWorldTest, HasAllRanksOnThisHost) {
  EXPECT_EQ(world->size(), 3);
  EXPECT_EQ(world->first_on_host(), std::vector<int>({0, 0, 0}));
  EXPECT_EQ(world->all().rank(), world->rank());
  EXPECT_EQ(world->all().size(), 3);
  EXPECT_EQ(OpenMpiWorld({}).status().code(), StatusCode::kFailedPrecondition);
}

TEST(MpiWorldTest, WrongCollectivesAreNamed) {
  const auto problem = [](int id, const std::vector<int>& ranks) {
    return std::string(Message(world->MakeCollective(id, ranks, {}).status()));
  };
  EXPECT_EQ(problem(0, {0, 1, 2}), "the id of a collective is 0; it must be between 1 and 4000");
  EXPECT_EQ(problem(1, {0, 1, 3}),
            "the ranks of collective 1 are 0, 1, 3; they must be different and between 0 and 2");
  EXPECT_EQ(problem(1, {}),
            "the ranks of collective 1 are ; they must be different and between 0 and 2");
  if (world->rank() == 2) {
    EXPECT_EQ(problem(1, {0, 1}), "rank 2 is not in collective 1, whose ranks are 0, 1");
  }
}

// How a group of one host starts: MPI tells the followers where the leader's memory is.
TEST(MpiWorldTest, TellsTheFollowersWhereTheSharedMemoryIs) {
  const GroupLayout layout = {.ranks = 3,
                              .collectives = {{.ranks = {0, 1, 2}, .slot_bytes = 4096}}};
  std::unique_ptr<GroupMemory> memory;
  std::array<int, 2> place = {};
  if (world->rank() == 0) {
    memory = *GroupMemory::Create(layout);
    place = {::getpid(), memory->fd()};
  }
  ASSERT_TRUE(world->all().BroadcastFromFirst(std::as_writable_bytes(std::span(place))).ok());
  if (world->rank() != 0) {
    auto opened = GroupMemory::OpenOf(place[0], place[1], layout);
    ASSERT_TRUE(opened.ok()) << opened.status();
    memory = *std::move(opened);
  }
  const auto collective = ShmCollective::Create(*memory, 0, world->rank(), {});
  ASSERT_TRUE(collective.ok()) << collective.status();
  std::vector<float> values = {1.0F};
  ASSERT_TRUE((*collective)->AllReduce(values).ok());
  EXPECT_EQ(values[0], 3.0F);
}

// Takes one letter; fails the test when none comes.
MpiLetter TakeOne() {
  auto letter = world->Take(std::chrono::seconds(10), std::chrono::microseconds(50));
  EXPECT_TRUE(letter.ok() && letter->has_value()) << letter.status();
  return letter.ok() && letter->has_value() ? **letter : MpiLetter{};
}

TEST(MpiWorldTest, LettersOfOneRankArriveInOrderAndWithoutWaiting) {
  const int next = (world->rank() + 1) % 3;
  const int before = (world->rank() + 2) % 3;
  const std::string large(size_t{3} << 20, 'x');
  ASSERT_TRUE(world->Post(next, "first").ok());
  ASSERT_TRUE(world->Post(next, large).ok());
  ASSERT_TRUE(world->Post(next, "").ok());
  for (const std::string& expected : {std::string("first"), large, std::string()}) {
    const MpiLetter letter = TakeOne();
    EXPECT_EQ(letter.from, before);
    EXPECT_EQ(letter.bytes, expected);
  }
  const auto none = world->Take(std::chrono::milliseconds(5), std::chrono::milliseconds(1));
  EXPECT_TRUE(none.ok() && !none->has_value());
}

// A message that MPI does not buffer arrives although its sender has gone on to compute.
TEST(MpiWorldTest, ASentMessageNeedsNoFurtherCallOfItsSender) {
  const auto made = world->MakeCollective(2, {0, 1, 2}, {});
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<std::byte> bytes(size_t{8} << 20, std::byte{7});
  ASSERT_LE(bytes.size(), (*made)->bytes_ahead());
  // Tells the sender, which makes no call of MPI meanwhile, that the message has arrived.
  const GroupLayout layout = {.ranks = 3, .collectives = {}};
  std::unique_ptr<GroupMemory> arrived = *GroupMemory::Create(layout);
  std::array<int, 2> place = {::getpid(), arrived->fd()};
  ASSERT_TRUE(world->all().BroadcastFromFirst(std::as_writable_bytes(std::span(place))).ok());
  if (world->rank() == 0) {
    ASSERT_TRUE((*made)->Send(1, bytes).ok());
    const SteadyClock clock;
    const Time limit = clock.Now() + std::chrono::seconds(20);
    while (!arrived->aborted() && clock.Now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(arrived->aborted()) << "the message waits for its sender";
  } else if (world->rank() == 1) {
    auto opened = GroupMemory::OpenOf(place[0], place[1], layout);
    ASSERT_TRUE(opened.ok()) << opened.status();
    std::vector<std::byte> received(bytes.size());
    ASSERT_TRUE((*made)->Receive(0, received).ok());
    (*opened)->Abort(1, "received");
    EXPECT_EQ(received, bytes);
  }
}

// Ranks with other sizes do not take part of a message for the whole.
TEST(MpiMismatchTest, OtherSizesOnAnotherRankAreFound) {
  std::vector<float> values(world->rank() == 1 ? 2 : 3);
  CollectiveOptions options;
  options.limit = std::chrono::seconds(5);
  const auto made = world->MakeCollective(1, {0, 1, 2}, options);
  ASSERT_TRUE(made.ok()) << made.status();
  Status status = (*made)->AllReduce(values);
  for (int i = 0; status.ok() && i < 3; ++i) status = (*made)->AllReduce(values);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(Message(status), testing::HasSubstr("sends another number of bytes"));
}

int Main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  auto opened = OpenMpiWorld({});
  if (!opened.ok()) {
    fmt::print(stderr, "{}\n", Message(opened.status()));
    return 2;
  }
  world = opened->get();
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::Main(argc, argv);
}
