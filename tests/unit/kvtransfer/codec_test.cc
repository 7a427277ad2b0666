#include "kvtransfer/messages/codec.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/conformance/layout_order.h"

namespace baton {
namespace {

Hello SomeHello() {
  Hello hello;
  hello.worker = WorkerId("decode-3");
  hello.boot = BootId(77);
  hello.model_fingerprint = {1, 2};
  hello.weights = {3, 4};
  hello.layout = DenseLayout({.layers = 30, .kv_heads = 3, .head_dim = 64, .dtype = DType::kF16});
  hello.shards = {{{0, 30, 0, 3}, 512, {{"shm", "1|host|name", 0}, {"tcp", "1|10.0.0.1:9", 2}}}};
  return hello;
}

std::vector<ControlMessage> OneOfEach() {
  return {SomeHello(),
          Offer{1000, std::chrono::milliseconds(1500)},
          Grant{99, 2, true, 3, 1000, {{BlockId(4), BlockId(9)}, {BlockId(7)}}},
          Refuse{MakeStatus(StatusCode::kResourceExhausted, "no blocks")},
          Seal{2, 4096, {7, 8}, std::string("tok\0en", 6)},
          Resend{1, {0, 5}},
          Ack{4096},
          Renew{true, 7},
          Fail{MakeStatus(StatusCode::kCancelled, "gone")},
          Abort{MakeStatus(StatusCode::kDataLoss, "bad")},
          DrainAck{false},
          Bye{"draining"}};
}

TEST(CodecTest, EveryMessageComesBack) {
  ASSERT_EQ(OneOfEach().size(), std::variant_size_v<ControlMessage>);
  for (const ControlMessage& message : OneOfEach()) {
    const Envelope envelope{SessionId(1), Epoch(2), message};
    const auto decoded = DecodeEnvelope(EncodeEnvelope(envelope));
    ASSERT_TRUE(decoded.ok()) << Name(message) << ": " << decoded.status();
    EXPECT_EQ(*decoded, envelope) << Name(message);
  }
}

TEST(CodecTest, EveryTruncationIsRefused) {
  for (const ControlMessage& message : OneOfEach()) {
    const std::string bytes = EncodeEnvelope({SessionId(1), Epoch(2), message});
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(DecodeEnvelope(std::string_view(bytes).substr(0, size)).ok())
          << Name(message) << " cut to " << size;
    }
    EXPECT_FALSE(DecodeEnvelope(bytes + "x").ok()) << Name(message);
  }
}

TEST(CodecTest, FlippedBytesNeverCrash) {
  std::mt19937_64 random(42);
  for (const ControlMessage& message : OneOfEach()) {
    const std::string bytes = EncodeEnvelope({SessionId(1), Epoch(2), message});
    for (int i = 0; i < 2000; ++i) {
      std::string changed = bytes;
      for (int flips = 0; flips < 3; ++flips) {
        changed[random() % changed.size()] = static_cast<char>(random());
      }
      const auto decoded = DecodeEnvelope(changed);
      if (!decoded.ok()) continue;
      const auto again = DecodeEnvelope(EncodeEnvelope(*decoded));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(*again, *decoded);
    }
  }
}

TEST(CodecTest, OutOfRangeFieldsAreNamed) {
  Offer empty;
  const auto offer = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(1), empty}));
  EXPECT_NE(Message(offer.status()).find("total_tokens"), std::string::npos) << offer.status();
  Hello hello = SomeHello();
  hello.shards[0].shard.head_count = 4;
  const auto shards = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(1), hello}));
  EXPECT_NE(Message(shards.status()).find("shard"), std::string::npos) << shards.status();
  hello = SomeHello();
  hello.layout.groups[0].planes[0].dtype = DType::kQ8_0;
  const auto dtype = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(1), hello}));
  EXPECT_NE(Message(dtype.status()).find("f16, bf16 or fp8"), std::string::npos) << dtype.status();
  const auto kind = DecodeEnvelope(std::string(40, '\x7f'));
  EXPECT_NE(Message(kind.status()).find("kind is 127"), std::string::npos) << kind.status();
}

Hello HybridHello() {
  Hello hello = SomeHello();
  hello.layout = HybridLayout(30, 3, 64, 16);
  return hello;
}

TEST(CodecTest, AHelloTellsWhichLayersHaveStates) {
  const Envelope envelope{SessionId(1), Epoch(2), HybridHello()};
  const auto decoded = DecodeEnvelope(EncodeEnvelope(envelope));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, envelope);
  EXPECT_TRUE(std::get<Hello>(decoded->message).layout.has_state());
  Hello wrong = HybridHello();
  std::swap(wrong.layout.groups[0], wrong.layout.groups[1]);
  const auto order = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(2), wrong}));
  EXPECT_NE(Message(order.status()).find("only the last one may"), std::string::npos)
      << order.status();
  wrong = HybridHello();
  wrong.layout.groups[1].planes[0].dim = kMaxStateDim + 1;
  const auto dim = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(2), wrong}));
  EXPECT_NE(Message(dim.status()).find("dim of plane conv is 16777217"), std::string::npos)
      << dim.status();
}

TEST(CodecTest, AHelloTellsWindowsFromChunks) {
  Hello hello = SomeHello();
  hello.layout.groups[0].attention_chunk = 64;
  const Envelope envelope{SessionId(1), Epoch(2), hello};
  const auto decoded = DecodeEnvelope(EncodeEnvelope(envelope));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, envelope);
  EXPECT_EQ(std::get<Hello>(decoded->message).layout.groups[0].window(), KvWindow::OfChunks(64));
  hello.layout.groups[0].sliding_window = 64;
  const auto both = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(2), hello}));
  EXPECT_NE(Message(both.status()).find("it may have one of them"), std::string::npos)
      << both.status();
}

TEST(CodecTest, HelloOfAnotherVersionIsReadAndRefused) {
  Hello theirs = SomeHello();
  theirs.version = kKvProtocolVersion + 1;
  std::string bytes = EncodeEnvelope({SessionId(), Epoch(), theirs});
  bytes += "fields of the future";
  const auto decoded = DecodeEnvelope(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const Status refused = CheckCompatible(SomeHello(), std::get<Hello>(decoded->message));
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(refused).find(fmt::format("{}", theirs.version)), std::string::npos) << refused;
}

TEST(CompatibilityTest, PrintsBothSides) {
  const Hello ours = SomeHello();
  Hello theirs = SomeHello();
  EXPECT_TRUE(CheckCompatible(ours, theirs).ok());
  theirs.layout = DenseLayout({.layers = 30, .kv_heads = 8, .head_dim = 64});
  const Status layout = CheckCompatible(ours, theirs);
  EXPECT_NE(Message(layout).find("k 3 × 64 f16"), std::string::npos) << layout;
  EXPECT_NE(Message(layout).find("k 8 × 64 f32"), std::string::npos) << layout;
  theirs = SomeHello();
  theirs.layout.groups[0].planes[0].dtype = DType::kFp8;
  const auto back = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(1), theirs}));
  ASSERT_TRUE(back.ok()) << back.status();
  const Status dtype = CheckCompatible(ours, std::get<Hello>(back->message));
  EXPECT_NE(Message(dtype).find("fp8"), std::string::npos) << dtype;
  theirs = SomeHello();
  theirs.model_fingerprint.low = 5;
  EXPECT_NE(Message(CheckCompatible(ours, theirs)).find("fingerprint"), std::string::npos);
  theirs = SomeHello();
  theirs.weights.low = 5;
  const auto tuned = DecodeEnvelope(EncodeEnvelope({SessionId(1), Epoch(1), theirs}));
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  const Status weights = CheckCompatible(ours, std::get<Hello>(tuned->message));
  EXPECT_EQ(weights.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(weights).find("00000000000000030000000000000004"), std::string::npos);
  EXPECT_NE(Message(weights).find("00000000000000030000000000000005"), std::string::npos);
  theirs = SomeHello();
  theirs.shards.clear();
  EXPECT_FALSE(CheckCompatible(ours, theirs).ok());
}

TEST(CompatibilityTest, PrintsTheStatesOfBothSides) {
  const Hello ours = HybridHello();
  EXPECT_TRUE(CheckCompatible(ours, HybridHello()).ok());
  Hello theirs = HybridHello();
  theirs.layout.groups[1].state = false;
  const Status group = CheckCompatible(ours, theirs);
  EXPECT_NE(Message(group).find("of states of conv 3 × 192 f16"), std::string::npos) << group;
  EXPECT_NE(Message(group).find("26,28-29 of conv 3 × 192 f16"), std::string::npos) << group;
}

// Blocks of tokens count a prompt, and a part of a state has 16 bytes.
TEST(CompatibilityTest, RefusesStatesThatCannotBeHandedOff) {
  Hello alone = HybridHello();
  std::vector<int32_t>& layers = alone.layout.groups[1].layers;
  layers.insert(
      layers.end(), alone.layout.groups[0].layers.begin(), alone.layout.groups[0].layers.end());
  std::ranges::sort(layers);
  alone.layout.groups.erase(alone.layout.groups.begin());
  const Status none = CheckCompatible(alone, alone);
  EXPECT_NE(Message(none).find("every layer has a state"), std::string::npos) << none;
  Hello small = HybridHello();
  small.layout = HybridLayout(30, 3, 1, 1);
  small.shards = {{{0, 16, 0, 1}, 512, {}}};
  EXPECT_TRUE(CheckCompatible(small, small).ok()) << CheckCompatible(small, small);
  small.shards = {{{0, 4, 0, 1}, 512, {}}};
  const Status tiny = CheckCompatible(small, small);
  EXPECT_NE(Message(tiny).find("blocks of 4 bytes hold no part of a state"), std::string::npos)
      << tiny;
}

// Of states, exactly the last block of tokens is owed, and stands for the state.
TEST(OwedBlocksTest, AStateIsOwedWithTheLastBlock) {
  const KvLayout layout = HybridLayout(4, 2, 8, 16);
  for (const uint32_t tokens : {1, 15, 16, 17, 32, 100}) {
    const OwedBlocks owed = OwedBlocksOf(layout, tokens);
    EXPECT_EQ(owed.count, (tokens + 15) / 16);
    EXPECT_EQ(owed.first, (std::vector<uint32_t>{0, owed.count - 1})) << tokens;
    EXPECT_TRUE(owed.state);
    EXPECT_EQ(owed.block_groups(), 1u);
  }
}

TEST(OwedBlocksTest, AGrantHasTheBlocksOfItsReceiversState) {
  const OwedBlocks owed = OwedBlocksOf(HybridLayout(4, 2, 8, 16), 20);
  const auto check = [&](uint32_t cached, size_t blocks, size_t state) {
    Grant grant;
    grant.cached_blocks = cached;
    grant.blocks = {std::vector<BlockId>(blocks), std::vector<BlockId>(state)};
    return CheckOwed(grant, owed, 3);
  };
  EXPECT_TRUE(check(0, 2, 3).ok());
  EXPECT_TRUE(check(1, 1, 3).ok());
  EXPECT_TRUE(check(2, 0, 0).ok());
  for (const auto& [cached, blocks, state] :
       {std::array{0, 2, 0}, {0, 2, 2}, {0, 2, 4}, {0, 3, 2}, {1, 1, 0}, {2, 0, 3}, {0, 2, 1}}) {
    const Status wrong = check(static_cast<uint32_t>(cached), blocks, state);
    EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument) << cached << blocks << state;
  }
  EXPECT_NE(Message(check(0, 2, 4)).find("GRANT has 4 blocks of the state"), std::string::npos);
  EXPECT_NE(Message(check(0, 2, 4)).find("; 3 are owed"), std::string::npos) << check(0, 2, 4);
  // Of one group under another's name: as many blocks in all.
  EXPECT_NE(Message(check(0, 3, 2)).find("GRANT has 3 blocks of cache group 0"), std::string::npos);
}

}  // namespace
}  // namespace baton
