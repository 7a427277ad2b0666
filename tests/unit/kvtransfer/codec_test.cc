#include "kvtransfer/messages/codec.h"

#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace baton
