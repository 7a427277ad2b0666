#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"

namespace baton {
namespace {

std::vector<BlockId> Blocks(uint32_t first, uint32_t count) {
  std::vector<BlockId> blocks;
  for (uint32_t i = 0; i < count; ++i) blocks.push_back(BlockId(first + i));
  return blocks;
}

// Whole hand-offs between a KvSender and a KvReceiver, over each transport.
class HandoffTest : public testing::TestWithParam<std::string> {
 protected:
  HandoffPair::Options Options() const {
    HandoffPair::Options options;
    options.transport = GetParam();
    return options;
  }
};

TEST_P(HandoffTest, MovesEveryByte) {
  HandoffPair pair(Options());
  const std::vector<BlockId> source = Blocks(3, 10);
  pair.Send(SessionId(1), source, 4, "first token 42");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  const SessionLog received = pair.received().Get(SessionId(1));
  EXPECT_TRUE(received.committed) << received.status;
  EXPECT_EQ(received.payload, "first token 42");
  EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
  const SessionLog sent = pair.sent().Get(SessionId(1));
  EXPECT_TRUE(sent.status.ok()) << sent.status;
  EXPECT_EQ(sent.stats.transport, GetParam());
  EXPECT_EQ(sent.stats.bytes, received.stats.bytes);
  EXPECT_EQ(sent.stats.blocks, 10u);
}

TEST_P(HandoffTest, SendsOnlyWhatTheReceiverLacks) {
  HandoffPair pair(Options());
  const std::vector<BlockId> granted = Blocks(20, 6);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 4, granted);
  };
  const std::vector<BlockId> source = Blocks(0, 6);
  pair.Send(SessionId(1), source, 2, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.sent().Get(SessionId(1)).stats.blocks, 2u);
  EXPECT_TRUE(pair.SameContent(std::span(source).subspan(4), std::span(granted).subspan(4)));
  EXPECT_FALSE(pair.SameContent(std::span(source).first(1), std::span(granted).first(1)));
}

TEST_P(HandoffTest, CommitsWhenEverythingIsCached) {
  HandoffPair pair(Options());
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 2, Blocks(0, 2));
  };
  pair.Send(SessionId(1), Blocks(0, 2), 2, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.sent().Get(SessionId(1)).stats.bytes, 0u);
}

TEST_P(HandoffTest, UnequalShards) {
  HandoffPair::Options options = Options();
  options.sender_shards = {{0, 2, 0, 2}, {0, 2, 2, 2}};
  options.receiver_shards = {{0, 1, 0, 1}, {0, 1, 1, 3}, {1, 1, 0, 4}};
  options.op_bytes = 1000;
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 7);
  pair.Send(SessionId(1), source, 3, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed)
      << pair.received().Get(SessionId(1)).status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         HandoffTest,
                         testing::Values("shm", "tcp"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace baton
