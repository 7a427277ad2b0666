#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"

namespace baton {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uint32_t kBlocks = 16;

// A receiver that takes `rate` bytes per second: for the sender a slow link, as any other.
HandoffPair::Options Slow(uint64_t rate) {
  HandoffPair::Options options;
  options.receive_bytes_per_second = rate;
  options.op_bytes = 4096;
  return options;
}

// All of the KV of a prompt, which is computed already. 1 KiB a block.
void Send(HandoffPair& pair, SessionId id, Duration patience, Duration timeout = seconds(25)) {
  const auto first = static_cast<uint32_t>(id.value()) * kBlocks;
  pair.Offer(id, kBlocks * 4, timeout);
  pair.sender().ChunkReady(id, Epoch(1), 0, Blocks(first, kBlocks));
  pair.sender().Seal(id, Epoch(1), "x", patience);
}

TEST(SlowHandoffTest, EndsWhenItIsNotWorthWaitingFor) {
  HandoffPair pair(Slow(2000));  // 8 s
  const Time start = SteadyClock().Now();
  Send(pair, SessionId(0), seconds(1));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(0)));
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(0)));
  EXPECT_LT(SteadyClock().Now() - start, seconds(6));
  const Status status = pair.sent().Get(SessionId(0)).status;
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the link is slow: 0.0"));
  EXPECT_FALSE(pair.received().Get(SessionId(0)).committed);
  const KvTransferStats stats = pair.sender().Stats();
  EXPECT_NEAR(stats.by_peer.begin()->second.bytes_per_second, 2000, 1500);
}

TEST(SlowHandoffTest, EndsWhenItsTimeDoesNotSuffice) {
  HandoffPair pair(Slow(1000));  // 16 s
  const Time start = SteadyClock().Now();
  Send(pair, SessionId(0), seconds(1000), seconds(10));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(0)));
  EXPECT_LT(SteadyClock().Now() - start, seconds(7));
  EXPECT_EQ(pair.sent().Get(SessionId(0)).status.code(), StatusCode::kUnavailable);
}

// 8 KiB of KV in 16 pieces, and then a state of 24 KiB in 8 pieces: after 3 s a third of the
// pieces, but two thirds of the bytes are left, which take 5 s.
TEST(SlowHandoffTest, EndsWhenTheStateTakesTooLong) {
  HandoffPair::Options options = Slow(4000);
  options.layout = DenseLayout(
      {.layers = 9,
       .kv_heads = 4,
       .head_dim = 8,
       .block_tokens = 4,
       .dtype = DType::kF16,
       .state = {.layers = {0, 1, 2, 3, 4, 5, 6, 7},
                 .planes = {{.name = "memory", .heads = 4, .dim = 192, .dtype = DType::kF32}}}});
  options.layout.layer_group_ends = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  options.blocks = 80;
  HandoffPair pair(options);
  pair.Offer(SessionId(0), kBlocks * 4, seconds(25));
  pair.sender().ChunkReady(SessionId(0), Epoch(1), 0, Blocks(0, kBlocks), Blocks(kBlocks, 48));
  pair.sender().Seal(SessionId(0), Epoch(1), "x", std::chrono::milliseconds(3500));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(0)));
  const Status status = pair.sent().Get(SessionId(0)).status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("the link is slow: 0.02 MB are left"));
}

TEST(SlowHandoffTest, GoesOnWithoutAnotherWay) {
  HandoffPair pair(Slow(3000));  // 5.5 s
  Send(pair, SessionId(0), Duration::max());
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(0)));
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(0)));
  EXPECT_TRUE(pair.received().Get(SessionId(0)).committed);
}

}  // namespace
}  // namespace baton
