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

TEST(SlowHandoffTest, GoesOnWithoutAnotherWay) {
  HandoffPair pair(Slow(3000));  // 5.5 s
  Send(pair, SessionId(0), Duration::max());
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(0)));
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(0)));
  EXPECT_TRUE(pair.received().Get(SessionId(0)).committed);
}

}  // namespace
}  // namespace baton
