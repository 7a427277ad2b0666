#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/fake_gpu.h"

namespace baton {
namespace {

// Once the rate of its copies is known, a channel holds ready writes back. A prompt has three layer
// groups.
class BurstHandoffTest : public testing::Test {
 protected:
  // Hands `source` off once, so that the rate is known. Then offers it again and waits for the
  // grant.
  void Begin(const std::vector<BlockId>& source, uint32_t blocks, size_t op_bytes) {
    HandoffPair::Options options = HandoffPair::Options::OverCudaIpc(gpu_, gpu_);
    options.layout =
        DenseLayout({.layers = 6, .kv_heads = 8, .head_dim = 64, .dtype = DType::kF16});
    options.blocks = blocks;
    options.op_bytes = op_bytes;
    pair_.emplace(options);
    gpu_.Hold();
    pair_->Send(SessionId(1), source, static_cast<uint32_t>(source.size()), "x");
    WaitUntil([&] { return pair_->sender().Stats().ops > 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gpu_.Release();
    ASSERT_TRUE(pair_->sent().WaitEnd(SessionId(1)));
    ASSERT_TRUE(pair_->received().WaitEnd(SessionId(1)));
    piece_bytes_ = ShardBlockBytes(options.layout, {0, 2, 0, 8});
    before_ = 3 * source.size() * piece_bytes_;
    ASSERT_EQ(pair_->AwaitBytes(before_), before_);
    pair_->Offer(id_, static_cast<uint32_t>(source.size()) * 16);
    ASSERT_TRUE(pair_->sent().Wait(id_, [](const auto& log) { return log.granted; }));
  }
  void End(const std::vector<BlockId>& source) {
    pair_->sender().ChunkReady(id_, Epoch(1), 0, source);
    pair_->sender().Seal(id_, Epoch(1), "x");
    ASSERT_TRUE(pair_->received().WaitEnd(id_));
    EXPECT_TRUE(pair_->received().Get(id_).committed) << pair_->received().Get(id_).status;
    EXPECT_TRUE(pair_->SameContent(source, pair_->granted(id_)));
  }

  const SessionId id_{2};
  FakeGpu gpu_;
  std::optional<HandoffPair> pair_;
  uint64_t piece_bytes_ = 0;
  uint64_t before_ = 0;  // bytes moved by the first hand-off
};

TEST_F(BurstHandoffTest, HoldsBackUntilTheLastGroupIsToCome) {
  const std::vector<BlockId> source = Blocks(2, 4);
  Begin(source, 64, 0);
  const uint64_t ops = pair_->sender().Stats().ops;
  pair_->sender().LayersReady(id_, Epoch(1), 0, source, 2);
  WaitUntil([&] { return pair_->sender().Stats().ops > ops; });  // only checksums are computed
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(pair_->receiver().Stats().bytes, before_);
  pair_->sender().LayersReady(id_, Epoch(1), 0, source, 4);
  const uint64_t expected = before_ + 2 * source.size() * piece_bytes_;
  EXPECT_EQ(pair_->AwaitBytes(expected), expected);
  End(source);
}

// A channel holds at most 256 writes; writes beyond these move at once.
TEST_F(BurstHandoffTest, HoldsBackNoMoreThanAChannelHolds) {
  const std::vector<BlockId> source = Blocks(0, 300);
  Begin(source, 300, 1);  // every piece is one write
  pair_->sender().LayersReady(id_, Epoch(1), 0, source, 2);
  const uint64_t early = before_ + (source.size() - 256) * piece_bytes_;
  EXPECT_EQ(pair_->AwaitBytes(early), early);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(pair_->receiver().Stats().bytes, early);
  End(source);
}

// Once the rates are known, layers go in units: what is hidden in any case goes together, and only
// the last unit waits for the end of the computation.
TEST(LayerUnitTest, LayersGoInUnits) {
  // The time to compute them: longer than the first transfer takes on a machine that does other
  // work, too, because the second one is planned by its rate.
  constexpr auto kTwoLayers = std::chrono::milliseconds(250);
  for (const std::string transport : {"shm", "tcp"}) {
    SCOPED_TRACE(transport);
    HandoffPair::Options options;
    options.transport = transport;
    options.layout =
        DenseLayout({.layers = 6, .kv_heads = 8, .head_dim = 64, .dtype = DType::kF16});
    HandoffPair pair(options);
    const std::vector<BlockId> source = Blocks(2, 4);
    const uint64_t group_bytes = source.size() * ShardBlockBytes(options.layout, {0, 2, 0, 8});
    for (uint64_t i = 1; i <= 2; ++i) {
      const SessionId id(i);
      pair.Offer(id, static_cast<uint32_t>(source.size()) * 16);
      ASSERT_TRUE(pair.sent().Wait(id, [](const auto& log) { return log.granted; }));
      const uint64_t before = (i - 1) * 3 * group_bytes;
      pair.sender().LayersReady(id, Epoch(1), 0, source, 2);
      // The first hand-off knows no rate, so it sends at once.
      const uint64_t early = before + (i == 1 ? group_bytes : 0);
      ASSERT_EQ(pair.AwaitBytes(early), early);
      std::this_thread::sleep_for(kTwoLayers);
      EXPECT_EQ(pair.receiver().Stats().bytes, early);
      pair.sender().LayersReady(id, Epoch(1), 0, source, 4);
      ASSERT_EQ(pair.AwaitBytes(before + 2 * group_bytes), before + 2 * group_bytes);
      std::this_thread::sleep_for(kTwoLayers);
      pair.sender().ChunkReady(id, Epoch(1), 0, source);
      pair.sender().Seal(id, Epoch(1), "x");
      ASSERT_TRUE(pair.sent().WaitEnd(id));
      ASSERT_TRUE(pair.received().WaitEnd(id));
      EXPECT_TRUE(pair.SameContent(source, pair.granted(id)));
    }
  }
}

}  // namespace
}  // namespace baton
