#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/verbs/handshake.h"
#include "kvtransfer/verbs/write_mark.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

Handshake TwoRails() {
  Handshake handshake;
  handshake.address = 0x7f0000001000;
  handshake.bytes = 1 << 20;
  handshake.messages = {21, 22};
  RailAddress rail;
  rail.port = {Gid{0xfe, 0x80, 1}, 7, PortKind::kInfiniBand, 5};
  rail.rkey = 99;
  rail.index = 1;
  rail.queue_pairs = {{17, 18}, {0xffffff, 0}};
  handshake.rails.push_back(rail);
  rail.port.kind = PortKind::kRoceV4;
  rail.index = 3;
  handshake.rails.push_back(rail);
  return handshake;
}

std::string ErrorOf(const std::string& bytes) {
  const auto parsed = ParseHandshake(bytes);
  EXPECT_FALSE(parsed.ok());
  return std::string(Message(parsed.status()));
}

TEST(VerbsHandshakeTest, SurvivesEncoding) {
  const auto parsed = ParseHandshake(EncodeHandshake(TwoRails()));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, TwoRails());
}

TEST(VerbsHandshakeTest, IsRefusedWhenItIsCutOrTooLong) {
  const std::string bytes = EncodeHandshake(TwoRails());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(ErrorOf(bytes.substr(0, size)), HasSubstr("a handshake ends after")) << size;
  }
  EXPECT_EQ(ErrorOf(bytes + "xy"), "2 bytes follow a handshake");
}

TEST(VerbsHandshakeTest, AnotherVersionIsRefusedWithBothVersions) {
  std::string bytes = EncodeHandshake(TwoRails());
  bytes[4] = 9;
  EXPECT_EQ(ErrorOf(bytes),
            "a handshake begins with 0x564b5642, version 9; this side has 0x564b5642, version 3");
}

TEST(VerbsHandshakeTest, CountsAndNumbersOutOfRangeAreRefused) {
  const auto error_after = [](auto change) {
    Handshake handshake = TwoRails();
    change(handshake);
    return ErrorOf(EncodeHandshake(handshake));
  };
  EXPECT_THAT(error_after([](Handshake& h) { h.rails.clear(); }), HasSubstr("states 0 rails"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails.resize(9, h.rails[0]); }),
              HasSubstr("states 9 rails; 1 to 8"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[0].queue_pairs.clear(); }),
              HasSubstr("states 0 queue pairs on rail 1; 1 to 16"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[0].queue_pairs.resize(17); }),
              HasSubstr("states 17 queue pairs"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[0].queue_pairs[0].number = 1 << 24; }),
              HasSubstr("both have 24 bits"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[0].queue_pairs[0].psn = 1 << 24; }),
              HasSubstr("both have 24 bits"));
  EXPECT_THAT(error_after([](Handshake& h) { h.messages.number = 1 << 24; }),
              HasSubstr("both have 24 bits"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[0].port.mtu = 6; }), HasSubstr("MTU code 6"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[0].port.kind = PortKind{4}; }),
              HasSubstr("of kind 4"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[1].index = 1; }),
              HasSubstr("rail 1 after rail 1; rails must ascend"));
  EXPECT_THAT(error_after([](Handshake& h) { h.rails[1].index = 8; }), HasSubstr("states rail 8"));
  EXPECT_THAT(error_after([](Handshake& h) { h.bytes = ~uint64_t{0}; }), HasSubstr("has no end"));
}

TEST(VerbsHandshakeTest, RandomBytesAreRefused) {
  std::mt19937 random(3);
  for (int i = 0; i < 10000; ++i) {
    std::string bytes(random() % 300, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_FALSE(ParseHandshake(bytes).ok());
  }
}

TEST(VerbsDescriptorTest, SurvivesEncoding) {
  VerbsDescriptor descriptor;
  descriptor.address = "[fd00::7]:9000";
  descriptor.rails = {{Gid{0xfe, 0x80, 1}, 0, PortKind::kRoceV6, 0},
                      {Gid{1, 2, 3}, 0, PortKind::kInfiniBand, 0}};
  const std::string text = EncodeVerbsDescriptor(descriptor);
  EXPECT_EQ(text,
            "1|[fd00::7]:9000|roce6:fe800100000000000000000000000000,"
            "ib:01020300000000000000000000000000");
  const auto parsed = ParseVerbsDescriptor(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->address, descriptor.address);
  EXPECT_EQ(parsed->rails, descriptor.rails);
}

TEST(VerbsDescriptorTest, OtherTextsAreRefused) {
  const std::string rail = "ib:01020300000000000000000000000000";
  for (const std::string& text : {std::string(),
                                  std::string("1|"),
                                  std::string("1|a:1|"),
                                  "2|a:1|" + rail,
                                  "1|a:1|" + rail + ",",
                                  "1|a:1|" + rail + "0",
                                  "1|a:1|opa" + rail.substr(2),
                                  "1|a:1|ib:zz" + rail.substr(5),
                                  fmt::format("1|a:1|{}", fmt::join(std::vector(9, rail), ","))}) {
    EXPECT_FALSE(ParseVerbsDescriptor(text).ok()) << text;
  }
}

TEST(VerbsDescriptorTest, RailsOfDifferentKindsDoNotReachEachOther) {
  PortAddress ours;
  PortAddress theirs;
  EXPECT_TRUE(CheckReachable(0, ours, theirs).ok());
  theirs.kind = PortKind::kInfiniBand;
  EXPECT_EQ(Message(CheckReachable(2, ours, theirs)),
            "rail 2 is RoCE v2 over IPv4 here and InfiniBand at the peer");
}

TEST(WriteMarkTest, ACopyIsReachedByItsOwnNumberAndByLaterOnes) {
  EXPECT_EQ(QueuePairOf(MarkOf(127, 5)), 127u);
  EXPECT_EQ(NumberOf(MarkOf(127, kMaxMarkNumber + 3)), 2u);
  EXPECT_TRUE(IsReached(5, 5));
  EXPECT_TRUE(IsReached(6, 5));
  EXPECT_FALSE(IsReached(4, 5));
  EXPECT_FALSE(IsReached(0, 1));
}

TEST(WriteMarkTest, NumbersWrapAround) {
  EXPECT_FALSE(IsReached(kMaxMarkNumber, 0));
  EXPECT_TRUE(IsReached(0, kMaxMarkNumber));
  EXPECT_TRUE(IsReached(3, kMaxMarkNumber - 5));
}

}  // namespace
}  // namespace baton
