#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/handoff_pair.h"
#include "tests/conformance/layout_order.h"
#include "tests/unit/kvtransfer/handoff_way.h"

namespace baton {
namespace {

// Whole hand-offs between a KvSender and a KvReceiver, over each transport.
class HandoffTest : public testing::TestWithParam<HandoffWay> {
 protected:
  HandoffPair::Options Options() const {
    HandoffPair::Options options;
    GetParam().Apply(options);
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
  EXPECT_EQ(sent.stats.transport, GetParam().transport);
  EXPECT_EQ(sent.stats.bytes, received.stats.bytes);
  EXPECT_EQ(sent.stats.blocks, 10u);
}

// Of 40 KiB all but one burst takes its time.
TEST_P(HandoffTest, BlocksArriveNoFasterThanTheReceiverAllows) {
  constexpr uint64_t kRate = 400'000;
  HandoffPair::Options options = Options();
  options.receive_bytes_per_second = kRate;
  options.op_bytes = 4096;
  HandoffPair pair(options);
  const std::vector<BlockId> source = Blocks(0, 40);
  const SteadyClock clock;
  const Time begin = clock.Now();
  pair.Send(SessionId(1), source, 10, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  const double seconds = ToSeconds(clock.Now() - begin);
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed)
      << pair.received().Get(SessionId(1)).status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
  const uint64_t bytes = pair.received().Get(SessionId(1)).stats.bytes;
  // The last write may overdraw by its own size.
  EXPECT_GT(seconds, static_cast<double>(bytes - 2 * options.op_bytes) / kRate);
  EXPECT_LT(seconds, 5);
}

// With the bound, 20 KiB take 0.4 s; so do the 15 KiB of the rank on another host. With a bound of
// a hundredth they would take longer than the hand-off may.
TEST_P(HandoffTest, ABoundMayComeAndGo) {
  HandoffPair::Options options = Options();
  options.op_bytes = 1024;
  const bool receiver_paces = GetParam().transport == "tcp" || GetParam().transport == "shm";
  if (receiver_paces && !GetParam().on_gpu) {
    options.receiver_shards = {{0, 2, 0, 1}, {0, 2, 1, 3}};
    options.on_other_hosts = true;
  }
  HandoffPair pair(options);
  const SteadyClock clock;
  const uint64_t rate = options.on_other_hosts ? 37'500 : 50'000;
  pair.receiver().SetReceiveRate(rate);
  const Time begin = clock.Now();
  pair.Send(SessionId(1), Blocks(0, 20), 10, "x");
  pair.AwaitBytes(1);
  // A sender that paces keeps the rate of its grant.
  if (!receiver_paces) pair.receiver().SetReceiveRate(rate / 100);
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  EXPECT_GT(clock.Now() - begin, std::chrono::milliseconds(300));

  const uint64_t before = pair.receiver().Stats().bytes;
  if (!receiver_paces) pair.receiver().SetReceiveRate(0);
  pair.Send(SessionId(2), Blocks(0, 20), 10, "x");
  pair.AwaitBytes(before + 1);
  if (receiver_paces) pair.receiver().SetReceiveRate(rate / 100);
  pair.receiver().SetReceiveRate(0);
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(2)));
  EXPECT_TRUE(pair.received().Get(SessionId(2)).committed)
      << pair.received().Get(SessionId(2)).status;
}

TEST_P(HandoffTest, SealGoesWithTheBlocksWhereItCan) {
  HandoffPair pair(Options());
  std::atomic<int> seals = 0;
  pair.filter = [&](const Envelope& envelope, bool to_receiver) {
    if (to_receiver && std::holds_alternative<Seal>(envelope.message)) ++seals;
    return true;
  };
  pair.Send(SessionId(1), Blocks(0, 6), 2, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  EXPECT_EQ(seals, GetParam().transport == "cuda_ipc" ? 0 : 1);
  // All blocks are cached, so nothing is written. A channel that takes notes may have the window by
  // then, or not yet.
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 2, Blocks(10, 2));
  };
  const int before = seals;
  pair.Send(SessionId(2), Blocks(10, 2), 2, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(2)));
  EXPECT_TRUE(pair.received().Get(SessionId(2)).committed);
  EXPECT_LE(seals, before + 1);
  EXPECT_TRUE(seals > before || GetParam().transport == "cuda_ipc");
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

// Of layers with a window, only the blocks move that a token after the prompt reads.
TEST_P(HandoffTest, MovesOfAWindowWhatIsRead) {
  HandoffPair::Options options = Options();
  options.layout = MixedLayout(5, 4, 8);
  options.sender_shards = {{0, 5, 0, 1}, {0, 5, 1, 3}};
  options.receiver_shards = {{0, 3, 0, 4}, {3, 2, 0, 2}, {3, 2, 2, 2}};
  HandoffPair pair(options);
  constexpr uint32_t kTokenBlocks = 7;  // the window has four
  std::vector<BlockId> source = Blocks(3, 2 * kTokenBlocks);
  pair.Send(SessionId(1), source, 2, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  const std::vector<BlockId> granted = pair.granted(SessionId(1));
  EXPECT_TRUE(pair.SameContent(source, granted));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(pair.SameContent(std::span(source).subspan(2 * i, 2),
                                  std::span(granted).subspan(2 * i, 2)));
  }
  // Of each block, K and V of 4 heads in two layers without a window. Of 4 blocks, the same in
  // three layers with one, and a plane of one head: two layers on one receiver, and one layer on
  // two.
  constexpr uint64_t kHeads = uint64_t{kTokenBlocks} * 16 + uint64_t{4} * (24 + 4);
  const uint64_t bytes = kHeads * options.layout.groups[0].planes[0].head_bytes(16);
  EXPECT_EQ(pair.received().Get(SessionId(1)).stats.bytes, bytes);
  EXPECT_EQ(pair.sent().Get(SessionId(1)).stats.bytes, bytes);
  EXPECT_EQ(pair.sent().Get(SessionId(1)).stats.blocks, kTokenBlocks + 4);
}

// An MLA latent from two ranks to three, and layers with and without a window, whose blocks come
// from the same arena.
TEST_P(HandoffTest, MovesOtherPlanes) {
  HandoffPair::Options latent = Options();
  latent.layout = LatentLayout(4, 24);
  latent.sender_shards = {{0, 4, 0, 0}, {0, 4, 0, 0}};
  latent.receiver_shards = {{0, 2, 0, 0}, {2, 2, 0, 0}, {2, 2, 0, 0}};
  HandoffPair::Options mixed = Options();
  mixed.layout = MixedLayout(5, 4, 8);
  mixed.sender_shards = {{0, 5, 0, 1}, {0, 5, 1, 3}};
  mixed.receiver_shards = {{0, 3, 0, 4}, {3, 2, 0, 2}, {3, 2, 2, 2}};
  for (const HandoffPair::Options& options : {latent, mixed}) {
    SCOPED_TRACE(options.layout.ToString());
    HandoffPair pair(options);
    const std::vector<BlockId> source = Blocks(3, 12);
    pair.Send(SessionId(1), source, 2, "x");
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
    EXPECT_TRUE(pair.received().Get(SessionId(1)).committed)
        << pair.received().Get(SessionId(1)).status;
    EXPECT_TRUE(pair.SameContent(source, pair.granted(SessionId(1))));
    std::vector<BlockId> other = source;
    std::swap(other[0], other[2]);
    EXPECT_FALSE(pair.SameContent(other, pair.granted(SessionId(1))));
  }
}

// A prompt of two blocks. The first block is cached in both cache groups.
TEST_P(HandoffTest, SendsOnlyWhatEachCacheGroupLacks) {
  HandoffPair::Options options = Options();
  options.layout = MixedLayout(5, 4, 8);
  HandoffPair pair(options);
  const std::vector<BlockId> granted = Blocks(20, 4);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 1, granted);
  };
  const std::vector<BlockId> source = Blocks(0, 4);
  pair.Send(SessionId(1), source, 1, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed)
      << pair.received().Get(SessionId(1)).status;
  EXPECT_TRUE(pair.SameContent(std::span(source).subspan(2), std::span(granted).subspan(2)));
  EXPECT_FALSE(pair.SameContent(std::span(source).first(2), std::span(granted).first(2)));
}

// Three layer groups of two layers each.
TEST_P(HandoffTest, LayersGoBeforeTheRestIsComputed) {
  HandoffPair::Options options = Options();
  options.layout = DenseLayout({.layers = 6, .kv_heads = 8, .head_dim = 64, .dtype = DType::kF16});
  options.sender_shards = {{0, 6, 0, 4}, {0, 6, 4, 4}};
  options.receiver_shards = {{0, 3, 0, 8}, {3, 3, 0, 8}};
  options.blocks = 8;
  HandoffPair pair(options);
  const SessionId id(1);
  const std::vector<BlockId> source = Blocks(2, 4);
  pair.Offer(id, 4 * 16);
  ASSERT_TRUE(pair.sent().Wait(id, [](const auto& log) { return log.granted; }));
  const uint64_t group_bytes = ShardBlockBytes(options.layout, {0, 2, 0, 8});
  // Layers that are not reported as final change until they are.
  for (int32_t layers = 0; layers < 6; ++layers) {
    for (size_t shard = 0; shard < 2; ++shard) {
      const size_t layer_bytes = ShardBlockBytes(options.layout, {0, 1, 0, 4});
      for (const BlockId block : source) {
        pair.sender_arena(shard).Put(
            (size_t{block.value()} * 6 + static_cast<size_t>(layers)) * layer_bytes,
            Pattern((6 - static_cast<size_t>(layers)) * layer_bytes,
                    size_t{block.value()} * 100 + static_cast<size_t>(layers) * 10 + shard));
      }
    }
    pair.sender().LayersReady(id, Epoch(1), 0, std::span(source).first(3), layers);
    const uint64_t expected = 3 * group_bytes * (layers / 2);
    ASSERT_EQ(pair.AwaitBytes(expected), expected);
  }
  pair.sender().ChunkReady(id, Epoch(1), 0, source);
  pair.sender().Seal(id, Epoch(1), "x");
  ASSERT_TRUE(pair.received().WaitEnd(id));
  ASSERT_TRUE(pair.sent().WaitEnd(id));
  EXPECT_TRUE(pair.received().Get(id).committed) << pair.received().Get(id).status;
  EXPECT_TRUE(pair.SameContent(source, pair.granted(id)));
  EXPECT_EQ(pair.sent().Get(id).stats.blocks, 4u);
  EXPECT_EQ(pair.sent().Get(id).stats.bytes, 12 * group_bytes);
}

TEST_P(HandoffTest, ALeavingReceiverIsOfferedNothingNew) {
  HandoffPair pair(Options());
  pair.Offer(SessionId(1), 16);
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const auto& log) { return log.granted; }));
  pair.receiver().Leave("drained");
  pair.Offer(SessionId(2), 16);
  ASSERT_TRUE(pair.sent().Wait(SessionId(2), [](const auto& log) { return log.refusals == 1; }));
  EXPECT_EQ(pair.sent().Get(SessionId(2)).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(pair.received().Get(SessionId(2)).offers, 0);
  // The session under way continues.
  pair.sender().ChunkReady(SessionId(1), Epoch(1), 0, Blocks(0, 4));
  pair.sender().Seal(SessionId(1), Epoch(1), "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  pair.sender().Abort(SessionId(2), Epoch(1), MakeStatus(StatusCode::kCancelled, "given up"));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(2)));
}

TEST_P(HandoffTest, ManyAtOnce) {
  HandoffPair::Options options = Options();
  options.blocks = 640;
  HandoffPair pair(options);
  constexpr uint32_t kSessions = 64;
  for (uint32_t i = 0; i < kSessions; ++i) {
    pair.Send(SessionId(i), Blocks(i * 10, 10), 3, std::to_string(i));
  }
  for (uint32_t i = 0; i < kSessions; ++i) {
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(i)));
    ASSERT_TRUE(pair.sent().WaitEnd(SessionId(i)));
    EXPECT_EQ(pair.received().Get(SessionId(i)).payload, std::to_string(i));
    EXPECT_TRUE(pair.SameContent(Blocks(i * 10, 10), pair.granted(SessionId(i))));
  }
  WaitUntil([&] { return pair.receiver().Stats().finished >= kSessions; });
  EXPECT_EQ(pair.receiver().Stats().finished, kSessions);
}

TEST_P(HandoffTest, ChecksumsOff) {
  HandoffPair::Options options = Options();
  options.checksums = false;
  HandoffPair pair(options);
  pair.Send(SessionId(1), Blocks(0, 8), 3, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  EXPECT_TRUE(pair.SameContent(Blocks(0, 8), pair.granted(SessionId(1))));
}

TEST_P(HandoffTest, ARefusedOfferCanGoToAnotherPeer) {
  HandoffPair pair(Options());
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Refuse(id, epoch, MakeStatus(StatusCode::kResourceExhausted, "full"));
  };
  pair.Send(SessionId(1), Blocks(0, 4), 2, "x");
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const auto& log) { return log.refusals == 1; }));
  EXPECT_EQ(pair.sent().Get(SessionId(1)).ends, 0);
  EXPECT_EQ(pair.sent().Get(SessionId(1)).status.code(), StatusCode::kResourceExhausted);
  // There is no such peer: the offer is refused again, and the session stays parked until it is
  // aborted.
  OfferRequest again;
  again.session = SessionId(1);
  again.epoch = Epoch(1);
  again.peer = WorkerId("decode-9");
  again.total_tokens = 16;
  again.timeout = std::chrono::seconds(5);
  pair.sender().Offer(again);
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const auto& log) { return log.refusals == 2; }));
  pair.sender().Abort(SessionId(1), Epoch(1), MakeStatus(StatusCode::kCancelled, "given up"));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.received().Get(SessionId(1)).ends, 0);
}

// Otherwise the worker would wait for a prompt that is computed elsewhere, or never.
TEST_P(HandoffTest, AnOfferOfAnOldEpochIsRefusedAndCounted) {
  HandoffPair pair(Options());
  pair.on_offer = [](SessionId, Epoch, const Offer&) {};
  constexpr Duration kTimeout = std::chrono::seconds(10);
  pair.Offer(SessionId(1), 16, kTimeout, Epoch(2));
  ASSERT_TRUE(pair.received().Wait(SessionId(1), [](const auto& log) { return log.offers == 1; }));
  pair.Offer(SessionId(1), 16, kTimeout, Epoch(1));
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const auto& log) { return log.refusals == 1; }));
  EXPECT_EQ(pair.sent().Get(SessionId(1)).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(pair.received().Get(SessionId(1)).offers, 1);
  WaitUntil([&] { return pair.receiver().Stats().rejected_messages == 1; });
}

TEST_P(HandoffTest, AbortBeforeTheGrantIsAWithdrawal) {
  HandoffPair pair(Options());
  pair.on_offer = [](SessionId, Epoch, const Offer&) {};
  pair.Offer(SessionId(1), 16);
  ASSERT_TRUE(pair.received().Wait(SessionId(1), [](const auto& log) { return log.offers == 1; }));
  pair.sender().Abort(SessionId(1), Epoch(1), MakeStatus(StatusCode::kCancelled, "user left"));
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).withdrawn);
  // A grant that crosses the withdrawal gets OnReleased at once.
  pair.receiver().Grant(SessionId(1), Epoch(1), 0, Blocks(0, 4));
  ASSERT_TRUE(pair.received().Wait(SessionId(1), [](const auto& log) { return log.ends == 2; }));
}

TEST_P(HandoffTest, ASecondGrantHasNoEffect) {
  HandoffPair pair(Options());
  const std::vector<BlockId> first = Blocks(20, 4);
  pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
    pair.receiver().Grant(id, epoch, 0, first);
    pair.receiver().Grant(id, epoch, 0, Blocks(40, 4));
  };
  pair.Send(SessionId(1), Blocks(0, 4), 2, "x");
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_TRUE(pair.received().Get(SessionId(1)).committed);
  EXPECT_EQ(pair.received().Get(SessionId(1)).ends, 1);
  EXPECT_TRUE(pair.SameContent(Blocks(0, 4), first));
}

TEST_P(HandoffTest, AbortOfEitherSideReleasesBoth) {
  HandoffPair pair(Options());
  for (const bool by_sender : {true, false}) {
    const SessionId id(by_sender ? 1 : 2);
    pair.Offer(id, 16);
    ASSERT_TRUE(pair.sent().Wait(id, [](const auto& log) { return log.granted; }));
    pair.sender().ChunkReady(id, Epoch(1), 0, Blocks(0, 2));
    const Status reason = MakeStatus(StatusCode::kCancelled, "user left");
    if (by_sender) {
      pair.sender().Abort(id, Epoch(1), reason);
    } else {
      pair.receiver().Abort(id, Epoch(1), reason);
    }
    ASSERT_TRUE(pair.sent().WaitEnd(id));
    ASSERT_TRUE(pair.received().WaitEnd(id));
    // The receiver's windows may close before its ABORT arrives, so the sender's code may differ.
    const Status sent = pair.sent().Get(id).status;
    EXPECT_FALSE(sent.ok());
    if (by_sender) {
      EXPECT_EQ(sent.code(), StatusCode::kCancelled);
    }
    EXPECT_EQ(pair.received().Get(id).status.code(), StatusCode::kCancelled);
    EXPECT_FALSE(pair.received().Get(id).committed);
  }
}

TEST_P(HandoffTest, ABrokenStreamReleasesBoth) {
  HandoffPair::Options options = Options();
  options.times = HandoffPair::Impatient();
  options.times.lease = std::chrono::milliseconds(200);
  HandoffPair pair(options);
  pair.Offer(SessionId(1), 16);
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const auto& log) { return log.granted; }));
  pair.DisconnectSender();
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.sent().Get(SessionId(1)).status.code(), StatusCode::kUnavailable);
  // The receiver is not notified: it detects the loss by its lease.
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.received().Get(SessionId(1)).status.code(), StatusCode::kUnavailable);
}

TEST_P(HandoffTest, ASilentReceiverIsGivenUp) {
  HandoffPair::Options options = Options();
  options.times = HandoffPair::Impatient();
  options.times.lease = std::chrono::milliseconds(200);
  HandoffPair pair(options);
  std::atomic<bool> silent = false;
  pair.filter = [&](const Envelope&, bool to_receiver) { return to_receiver || !silent; };
  pair.Offer(SessionId(1), 16);
  ASSERT_TRUE(pair.sent().Wait(SessionId(1), [](const auto& log) { return log.granted; }));
  silent = true;
  pair.sender().ChunkReady(SessionId(1), Epoch(1), 0, Blocks(0, 4));
  pair.sender().Seal(SessionId(1), Epoch(1), "x");
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_FALSE(pair.sent().Get(SessionId(1)).status.ok());
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
}

TEST_P(HandoffTest, TheTimeoutEndsBothSides) {
  HandoffPair pair(Options());
  pair.Offer(SessionId(1), 16, std::chrono::milliseconds(50));
  ASSERT_TRUE(pair.sent().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.sent().Get(SessionId(1)).status.code(), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(pair.received().WaitEnd(SessionId(1)));
  EXPECT_EQ(pair.received().Get(SessionId(1)).status.code(), StatusCode::kDeadlineExceeded);
}

TEST_P(HandoffTest, WrongGrantsAreReleased) {
  HandoffPair pair(Options());
  const std::vector<std::vector<BlockId>> wrong = {
      Blocks(0, 3),
      Blocks(62, 4),
      {BlockId(1), BlockId(1), BlockId(2), BlockId(3)},
      {BlockId(1, 0), BlockId(1), BlockId(2), BlockId(3)}};
  for (uint32_t i = 0; i < wrong.size(); ++i) {
    pair.on_offer = [&](SessionId id, Epoch epoch, const Offer&) {
      pair.receiver().Grant(id, epoch, 0, wrong[i]);
    };
    pair.Offer(SessionId(i), 16);
    ASSERT_TRUE(pair.received().WaitEnd(SessionId(i)));
    EXPECT_EQ(pair.received().Get(SessionId(i)).status.code(), StatusCode::kInvalidArgument);
    ASSERT_TRUE(pair.sent().Wait(SessionId(i), [](const auto& log) { return log.refusals == 1; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, HandoffTest, HandoffWays(), testing::PrintToStringParamName());

}  // namespace
}  // namespace baton
