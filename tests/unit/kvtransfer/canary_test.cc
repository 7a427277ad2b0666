#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/memory_transport.h"
#include "tests/fakes/fake_gpu.h"

// Session A is granted blocks, writes a part of them and is aborted. Session B receives the same
// blocks. Whatever A's sender still writes, no byte of A lands in B.
namespace baton {
namespace {

constexpr uint32_t kCount = 16;
constexpr uint32_t kTokens = kCount * 4;
const SessionId kA(1);
const SessionId kB(2);

std::vector<BlockId> BlocksOfA() {
  return Blocks(0, kCount);
}
std::vector<BlockId> BlocksOfB() {
  return Blocks(kCount, kCount);
}
std::vector<BlockId> Granted() {
  return Blocks(5, kCount);
}

// Grants the same blocks to every session.
void GrantTheSame(HandoffPair& pair) {
  pair.on_offer = [&pair](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 0, Granted());
  };
}

class CanaryTest : public testing::TestWithParam<std::string> {
 protected:
  HandoffPair::Options Options() {
    HandoffPair::Options options;
    options.transport = GetParam();
    options.op_bytes = 1000;
    const bool on_gpu = GetParam() == "cuda_ipc" || GetParam() == "nccl";
    if (on_gpu) options.device = &gpu_, options.dma = &gpu_;
    if (GetParam() == "memory") {
      options.make_transport = [this](std::string_view) { return fabric_.MakeTransport(); };
    }
    return options;
  }

  FakeGpu gpu_;
  MemoryFabric fabric_;
};

// A's sender does not hear that its session is aborted, as if ABORT were lost, and goes on.
TEST_P(CanaryTest, ASenderThatGoesOnWritesNothingIntoTheNextSession) {
  HandoffPair pair(Options());
  GrantTheSame(pair);
  std::atomic<bool> deaf = true;
  pair.filter = [&](const Envelope& envelope, bool to_receiver) {
    return to_receiver || !deaf || envelope.session != kA ||
           !std::holds_alternative<Abort>(envelope.message);
  };
  pair.Offer(kA, kTokens);
  pair.sender().ChunkReady(kA, Epoch(1), 0, Blocks(0, kCount / 2));
  const uint64_t half = pair.sender_arena(0).size() / 64 * kCount / 2;
  ASSERT_EQ(pair.AwaitBytes(half), half);
  pair.receiver().Abort(kA, Epoch(1), MakeStatus(StatusCode::kCancelled, "the user left"));
  ASSERT_TRUE(pair.received().WaitEnd(kA));
  EXPECT_FALSE(pair.received().Get(kA).committed);

  pair.Send(kB, BlocksOfB(), kCount, "b");
  ASSERT_TRUE(pair.received().WaitEnd(kB));
  ASSERT_TRUE(pair.received().Get(kB).committed) << pair.received().Get(kB).status;
  ASSERT_TRUE(pair.SameContent(BlocksOfB(), Granted()));
  pair.sender().ChunkReady(kA, Epoch(1), 0, BlocksOfA());
  pair.sender().Seal(kA, Epoch(1), "a");
  ASSERT_TRUE(pair.sent().WaitEnd(kA));
  EXPECT_FALSE(pair.sent().Get(kA).committed);
  EXPECT_TRUE(pair.SameContent(BlocksOfB(), Granted()));
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         CanaryTest,
                         testing::Values(std::string("shm"), "tcp", "cuda_ipc", "nccl", "memory"),
                         [](const auto& param) { return param.param; });

// A one-sided sender's copies are under way when the session is aborted: the blocks are released
// only after these copies have ended.
TEST(OneSidedCanaryTest, CopiesUnderWayDoNotLandAfterTheRelease) {
  FakeGpu gpu;
  HandoffPair pair(HandoffPair::Options::OverCudaIpc(gpu, gpu));
  GrantTheSame(pair);
  gpu.Hold();
  pair.Send(kA, BlocksOfA(), kCount, "a");
  ASSERT_TRUE(pair.sent().Wait(kA, [](const SessionLog& log) { return log.granted; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // for the window and the copies
  pair.receiver().Abort(kA, Epoch(1), MakeStatus(StatusCode::kCancelled, "the user left"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (pair.received().Get(kA).ends == 0) gpu.Release();
  ASSERT_TRUE(pair.received().WaitEnd(kA));
  EXPECT_FALSE(pair.received().Get(kA).committed);
  // From here on the blocks are B's.
  TestMemory& arena = pair.receiver_arena(0);
  arena.Fill(std::byte{0x55});
  gpu.Release();
  ASSERT_TRUE(pair.sent().WaitEnd(kA));
  EXPECT_EQ(arena.GetAll(), std::vector<std::byte>(arena.size(), std::byte{0x55}));
}

// The delayed-write transport: A's writes are late, out of order, twice, torn or never there, and
// the abort comes at any point between them.
TEST(DelayedCanaryTest, LateWritesOfAnAbortedSessionReachNoOther) {
  MemoryFabric fabric;
  WriteFaults wild{.late = 0.6,
                   .twice = 0.3,
                   .never = 0.1,
                   .torn = 0.3,
                   .latest = std::chrono::milliseconds(10)};
  const WriteFaults late{.late = 0.5, .latest = std::chrono::milliseconds(5)};
  std::mt19937_64 random(7);
  int aborted = 0;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    HandoffPair::Options options;
    options.transport = "memory";
    options.op_bytes = 1000;
    options.times.renew = std::chrono::milliseconds(20);
    // Longer than a write can be late: only writes that never land need the fence.
    options.times.drain = 4 * wild.latest;
    options.make_transport = [&](std::string_view) { return fabric.MakeTransport(); };
    HandoffPair pair(options);
    GrantTheSame(pair);
    const bool deaf = round % 2 == 0;
    pair.filter = [&](const Envelope& envelope, bool to_receiver) {
      return to_receiver || !deaf || envelope.session != kA ||
             !std::holds_alternative<Abort>(envelope.message);
    };
    fabric.SetFaults(wild);
    pair.Send(kA, BlocksOfA(), 4, "a");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    pair.receiver().Abort(kA, Epoch(1), MakeStatus(StatusCode::kCancelled, "the user left"));
    ASSERT_TRUE(pair.received().WaitEnd(kA));
    if (!pair.received().Get(kA).committed) ++aborted;
    fabric.SetFaults(late);
    pair.Send(kB, BlocksOfB(), 4, "b");
    ASSERT_TRUE(pair.received().WaitEnd(kB));
    ASSERT_TRUE(pair.received().Get(kB).committed) << pair.received().Get(kB).status;
    ASSERT_TRUE(pair.SameContent(BlocksOfB(), Granted()));
    std::this_thread::sleep_for(2 * wild.latest);  // for what A's sender may still have under way
    ASSERT_TRUE(pair.SameContent(BlocksOfB(), Granted()));
  }
  EXPECT_GT(aborted, 20);
}

}  // namespace
}  // namespace baton
