#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/layout_order.h"
#include "tests/conformance/memory_transport.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/fakes/host_buffer.h"
#include "tests/unit/kvtransfer/handoff_way.h"

// Hand-offs of models whose layers have states, over each transport.
namespace baton {
namespace {

using ::testing::HasSubstr;

const SessionId kId(1);
constexpr uint32_t kTokenBlocks = 5;
// Layers 0 to 2, 4 and 5 have states; layer 3 has KV.
constexpr int32_t kLayers = 6;
const std::vector<KvShard> kWhole = {{0, kLayers, 0, 4}};
const std::vector<KvShard> kTwoTensor = {{0, kLayers, 0, 2}, {0, kLayers, 2, 2}};
const std::vector<KvShard> kUnevenTensor = {{0, kLayers, 0, 1}, {0, kLayers, 1, 3}};
// The first and the last stage have states alone.
const std::vector<KvShard> kThreeStages = {{0, 2, 0, 4}, {2, 2, 0, 4}, {4, 2, 0, 4}};

HandoffPair::Options Hybrid(const std::vector<KvShard>& from, const std::vector<KvShard>& to) {
  HandoffPair::Options options;
  options.layout = HybridLayout(kLayers, 4, 8, 4);
  options.sender_shards = from;
  options.receiver_shards = to;
  options.blocks = 128;
  return options;
}

// Blocks of a state of the sender, behind the blocks of its prompt.
std::vector<BlockId> SourceState(const HandoffPair::Options& options) {
  return Blocks(kTokenBlocks + 2,
                static_cast<uint32_t>(StateBlocks(options.layout, options.sender_shards)));
}

uint32_t TargetStateBlocks(const HandoffPair::Options& options) {
  return static_cast<uint32_t>(StateBlocks(options.layout, options.receiver_shards));
}

// Of one block of tokens, and of the state, on all ranks of the receiver.
uint64_t BlockBytes(const HandoffPair::Options& options) {
  return ShardBlockBytes(options.layout, WholeModel(options.layout));
}
uint64_t StateBytes(const HandoffPair::Options& options) {
  uint64_t bytes = 0;
  for (const KvShard& shard : options.receiver_shards) {
    bytes += ShardStateBytes(options.layout, shard);
  }
  return bytes;
}

void ExpectMoved(HandoffPair& pair, const HandoffPair::Options& options) {
  const std::vector<BlockId> source = Blocks(1, kTokenBlocks);
  const std::vector<BlockId> state = SourceState(options);
  pair.Send(kId, source, 2, "x", state);
  ASSERT_TRUE(pair.received().WaitEnd(kId));
  ASSERT_TRUE(pair.sent().WaitEnd(kId));
  const SessionLog received = pair.received().Get(kId);
  EXPECT_TRUE(received.committed) << received.status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(kId)));
  EXPECT_TRUE(pair.SameState(state, pair.granted_state(kId)));
  std::vector<BlockId> other = state;
  std::swap(other[0], other[1]);
  EXPECT_FALSE(pair.SameState(other, pair.granted_state(kId)));
  const uint64_t bytes = kTokenBlocks * BlockBytes(options) + StateBytes(options);
  EXPECT_EQ(received.stats.bytes, bytes);
  EXPECT_EQ(received.stats.blocks, kTokenBlocks + TargetStateBlocks(options));
  const SessionLog sent = pair.sent().Get(kId);
  EXPECT_EQ(sent.stats.bytes, bytes);
  EXPECT_EQ(sent.stats.blocks, received.stats.blocks);
}

class StateHandoffTest : public testing::TestWithParam<HandoffWay> {
 protected:
  HandoffPair::Options Options(const std::vector<KvShard>& from,
                               const std::vector<KvShard>& to) const {
    HandoffPair::Options options = Hybrid(from, to);
    GetParam().Apply(options);
    return options;
  }
};

TEST_P(StateHandoffTest, MovesTheStateBetweenAllShapes) {
  const std::vector<std::vector<KvShard>> shapes = {
      kWhole, kTwoTensor, kUnevenTensor, kThreeStages};
  for (const auto& from : shapes) {
    for (const auto& to : shapes) {
      SCOPED_TRACE(fmt::format("from {} shards to {}", from.size(), to.size()));
      const HandoffPair::Options options = Options(from, to);
      HandoffPair pair(options);
      ExpectMoved(pair, options);
      if (HasFatalFailure()) return;
    }
  }
}

// A part of the prompt is cached. The state after its last token is not.
TEST_P(StateHandoffTest, TheStateMovesUnlessAllIsCached) {
  const HandoffPair::Options options = Options(kTwoTensor, kWhole);
  const std::vector<BlockId> granted = Blocks(30, kTokenBlocks);
  const std::vector<BlockId> state = Blocks(60, TargetStateBlocks(options));
  for (const uint32_t cached : {kTokenBlocks - 1, kTokenBlocks}) {
    SCOPED_TRACE(cached);
    HandoffPair pair(options);
    pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
      pair.receiver().Grant(id, epoch, cached, granted, state);
    };
    pair.Send(kId, Blocks(1, kTokenBlocks), 2, "x", SourceState(options));
    ASSERT_TRUE(pair.received().WaitEnd(kId));
    ASSERT_TRUE(pair.sent().WaitEnd(kId));
    EXPECT_TRUE(pair.received().Get(kId).committed) << pair.received().Get(kId).status;
    const bool moved = cached < kTokenBlocks;
    EXPECT_EQ(pair.SameState(SourceState(options), state), moved);
    EXPECT_EQ(pair.sent().Get(kId).stats.bytes,
              moved ? BlockBytes(options) + StateBytes(options) : 0u);
    EXPECT_EQ(pair.sent().Get(kId).stats.blocks, moved ? 1 + state.size() : 0u);
  }
}

// Layer groups end after layers 1, 5 and 6. What is not reported as final changes until it is.
TEST_P(StateHandoffTest, FirstLayersOfTheStateGoBeforeTheRestIsComputed) {
  const HandoffPair::Options options = Options(kWhole, kTwoTensor);
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 1);
  const std::vector<BlockId> state = SourceState(options);
  pair.Offer(kId, 4);
  ASSERT_TRUE(pair.sent().Wait(kId, [](const auto& log) { return log.granted; }));
  const KvShard whole = WholeModel(options.layout);
  const uint64_t shared = options.layout.groups.back().planes.back().head_bytes(1);
  const size_t stride = ShardBlockBytes(options.layout, whole);
  for (const int32_t layers : {0, 1, 5}) {
    const size_t computed = ShardStateBytes(options.layout, {0, layers, 0, 4});
    for (size_t at = computed; at < ShardStateBytes(options.layout, whole); ++at) {
      pair.sender_arena(0).Put(state[at / StateBlockBytes(options.layout, whole)].value() * stride +
                                   at % StateBlockBytes(options.layout, whole),
                               Pattern(1, at * 10 + static_cast<size_t>(layers)));
    }
    pair.sender().LayersReady(kId, Epoch(1), 0, source, layers, state);
    // Each of the two ranks gets the plane that they share.
    const uint64_t state_layers = layers == 5 ? 4 : static_cast<uint64_t>(layers);
    const uint64_t expected =
        computed + state_layers * shared + (layers == 5 ? BlockBytes(options) : 0);
    ASSERT_EQ(pair.AwaitBytes(expected), expected) << layers;
  }
  pair.sender().ChunkReady(kId, Epoch(1), 0, source, state);
  pair.sender().Seal(kId, Epoch(1), "x");
  ASSERT_TRUE(pair.received().WaitEnd(kId));
  EXPECT_TRUE(pair.received().Get(kId).committed) << pair.received().Get(kId).status;
  EXPECT_TRUE(pair.SameState(state, pair.granted_state(kId)));
}

// One layer of the state is larger than a staging buffer.
TEST_P(StateHandoffTest, MovesLargeStates) {
  HandoffPair::Options options = Options(kTwoTensor, kWhole);
  options.layout = HybridLayout(kLayers, 4, 128, 16);
  std::vector<KvPlane>& planes = options.layout.groups.back().planes;
  planes[1].dim = (1 << 19) + 1;
  options.layout.groups.back().layers = {0, 1};
  options.layout.groups.front().layers = {2, 3, 4, 5};
  ASSERT_GT(planes[1].heads * planes[1].head_bytes(1), size_t{4} << 20);
  options.blocks = TargetStateBlocks(options) + 20;
  HandoffPair pair(options);
  const std::vector<BlockId> state = SourceState(options);
  pair.Send(kId, Blocks(1, kTokenBlocks), 2, "x", state);
  ASSERT_TRUE(pair.received().WaitEnd(kId));
  ASSERT_TRUE(pair.sent().WaitEnd(kId));
  EXPECT_TRUE(pair.received().Get(kId).committed) << pair.received().Get(kId).status;
  EXPECT_TRUE(pair.SameState(state, pair.granted_state(kId)));
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         StateHandoffTest,
                         HandoffWays(),
                         testing::PrintToStringParamName());

TEST(StateGrantTest, WrongStatesAreReleased) {
  const HandoffPair::Options options = Hybrid(kTwoTensor, kWhole);
  const std::vector<BlockId> granted = Blocks(30, kTokenBlocks);
  const std::vector<BlockId> right = Blocks(60, TargetStateBlocks(options));
  std::vector<std::pair<std::vector<BlockId>, std::string>> wrong = {
      {{}, fmt::format("0 blocks of a state are granted; it has {}", right.size())},
      {Blocks(60, TargetStateBlocks(options) + 1),
       fmt::format("{} blocks of a state are granted", right.size() + 1)}};
  wrong.emplace_back(right, "block 61 is granted twice");
  wrong.back().first[0] = BlockId(61);
  wrong.emplace_back(right, "block 33 is granted twice");
  wrong.back().first[1] = granted[3];
  wrong.emplace_back(right, "block 128 is outside");
  wrong.back().first[1] = BlockId(128);
  wrong.emplace_back(right, "block 61 of tier 1 is outside");
  wrong.back().first[1] = BlockId(1, 61);
  HandoffPair pair(options);
  for (uint32_t i = 0; i < wrong.size(); ++i) {
    pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
      pair.receiver().Grant(id, epoch, 0, granted, wrong[i].first);
    };
    pair.Offer(SessionId(i), kTokenBlocks * 4);
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(i)));
    EXPECT_THAT(std::string(Message(pair.received().Get(SessionId(i)).status)),
                HasSubstr(wrong[i].second));
    ASSERT_TRUE(pair.sent().Wait(SessionId(i), [](const auto& log) { return log.refusals == 1; }));
  }
}

TEST(StateChunkTest, TheLastBlockNeedsTheState) {
  const HandoffPair::Options options = Hybrid(kWhole, kTwoTensor);
  HandoffPair pair(options);
  std::vector<BlockId> short_state = SourceState(options);
  short_state.pop_back();
  std::vector<BlockId> outside = SourceState(options);
  outside[0] = BlockId(options.blocks);
  uint64_t id = 1;
  for (const std::vector<BlockId>& state : {std::vector<BlockId>(), short_state, outside}) {
    pair.Send(SessionId(++id), Blocks(1, kTokenBlocks), 2, "x", state);
    ASSERT_TRUE(pair.sent().WaitEnd(SessionId(id)));
    EXPECT_EQ(pair.sent().Get(SessionId(id)).status.code(), StatusCode::kInvalidArgument)
        << pair.sent().Get(SessionId(id)).status;
  }
}

// Its blocks cannot be counted, and a part of a state does not fit its blocks.
TEST(StateOptionsTest, AWorkerThatCannotHandOffItsStatesIsRefused) {
  class Listener final : public KvSenderListener {
    void OnRefused(SessionId, Epoch, const Status&) override {}
    void OnFinished(SessionId, Epoch, const Status&, const TransferStats&) override {}
  } listener;
  HostBuffer arena(4096);
  KvTransferOptions options;
  options.worker = WorkerId("prefill-0");
  options.transport.require_transport = "tcp";
  const auto create = [&](const KvLayout& layout) {
    options.layout = layout;
    options.shards = {{WholeModel(layout), &arena, 1}};
    return std::string(Message(KvSender::Create(options, listener).status()));
  };
  KvLayout layout = HybridLayout(4, 1, 1, 1);
  EXPECT_THAT(create(layout), HasSubstr("blocks of 4 bytes hold no part of a state"));
  layout.groups[1].layers = {0, 1, 2, 3};
  layout.groups.erase(layout.groups.begin());
  EXPECT_THAT(create(layout), HasSubstr("KV transfer: every layer has a state"));
}

// A prompt of one block: what is damaged is its block and its state.
TEST(DamagedStateTest, IsSentAgain) {
  FakeGpu gpu;
  HandoffPair::Options options = Hybrid(kTwoTensor, kThreeStages);
  options.transport = "cuda_ipc";
  options.device = &gpu;
  options.dma = &gpu;
  HandoffPair pair(options);
  pair.filter = [&](const Envelope& envelope, bool) {
    if (std::holds_alternative<Resend>(envelope.message)) gpu.Corrupt(false);
    return true;
  };
  gpu.Corrupt(true);
  const std::vector<BlockId> state = SourceState(options);
  pair.Send(kId, Blocks(0, 1), 1, "x", state);
  ASSERT_TRUE(pair.received().WaitEnd(kId));
  ASSERT_TRUE(pair.sent().WaitEnd(kId));
  EXPECT_TRUE(pair.received().Get(kId).committed) << pair.received().Get(kId).status;
  EXPECT_TRUE(pair.SameContent(Blocks(0, 1), pair.granted(kId)));
  EXPECT_TRUE(pair.SameState(state, pair.granted_state(kId)));
  EXPECT_EQ(pair.sent().Get(kId).stats.resent_blocks, 1u);
  EXPECT_EQ(pair.sent().Get(kId).stats.bytes, 2 * (BlockBytes(options) + StateBytes(options)));
}

// Of both sides, as long as the copies hang.
TEST(QuarantinedStateTest, ItsBlocksCount) {
  FakeGpu gpu;
  HandoffPair::Options options = Hybrid(kTwoTensor, kWhole);
  options.transport = "cuda_ipc";
  options.device = &gpu;
  options.dma = &gpu;
  options.times = HandoffPair::Impatient();
  HandoffPair pair(options);
  gpu.Hold();
  pair.Offer(kId, kTokenBlocks * 4);
  pair.sender().ChunkReady(kId, Epoch(1), 0, Blocks(1, kTokenBlocks), SourceState(options));
  ASSERT_TRUE(pair.sent().Wait(kId, [](const SessionLog& log) { return log.granted; }));
  WaitUntil([&] { return gpu.waiting() > 0; });
  pair.sender().Abort(kId, Epoch(1), MakeStatus(StatusCode::kCancelled, "the user left"));
  WaitUntil([&] { return pair.sender().Stats().quarantined == 1; });
  EXPECT_EQ(pair.sender().Stats().quarantined_blocks, kTokenBlocks + SourceState(options).size());
  WaitUntil([&] { return pair.receiver().Stats().quarantined == 1; });
  EXPECT_EQ(pair.receiver().Stats().quarantined_blocks, kTokenBlocks + TargetStateBlocks(options));
  gpu.Release();
  WaitUntil([&] { return pair.sender().Stats().quarantined == 0; });
  EXPECT_EQ(pair.sender().Stats().quarantined_blocks, 0u);
}

// A transport that applies writes late, out of order, twice, damaged or never.
TEST(DelayedStateTest, CommitsOnlyWhatIsRight) {
  WriteFaults faults;
  faults.late = 0.5;
  faults.twice = 0.3;
  faults.never = 0.005;
  faults.corrupt = 0.02;
  MemoryFabric fabric(faults);
  HandoffPair::Options options = Hybrid(kTwoTensor, kThreeStages);
  options.transport = "memory";
  options.make_transport = [&](std::string_view) { return fabric.MakeTransport(); };
  options.op_bytes = 1;
  options.offer_timeout = std::chrono::seconds(2);
  constexpr uint32_t kSessions = 24;
  const uint32_t taken = kTokenBlocks + TargetStateBlocks(options);
  options.blocks = kSessions * (taken + StateBlocks(options.layout, options.sender_shards));
  HandoffPair pair(options);
  const auto own = static_cast<uint32_t>(SourceState(options).size());
  const auto state_of = [own](uint32_t session) {
    return Blocks(kSessions * kTokenBlocks + session * own, own);
  };
  for (uint32_t i = 0; i < kSessions; ++i) {
    pair.Send(SessionId(i), Blocks(i * kTokenBlocks, kTokenBlocks), 3, "x", state_of(i));
  }
  uint32_t committed = 0;
  for (uint32_t i = 0; i < kSessions; ++i) {
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(i)));
    ASSERT_TRUE(pair.sent().WaitEnd(SessionId(i)));
    if (!pair.received().Get(SessionId(i)).committed) continue;
    ++committed;
    EXPECT_TRUE(
        pair.SameContent(Blocks(i * kTokenBlocks, kTokenBlocks), pair.granted(SessionId(i))));
    EXPECT_TRUE(pair.SameState(state_of(i), pair.granted_state(SessionId(i)))) << i;
  }
  EXPECT_GT(committed, kSessions / 4);
  EXPECT_GT(pair.receiver().Stats().checksum_errors, 0u);
}

}  // namespace
}  // namespace baton
