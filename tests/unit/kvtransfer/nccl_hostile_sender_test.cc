// Senders over "nccl" that break the protocol, and the answer to their first frame.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kvtransfer/nccl/staged_pair.h"
#include "kvtransfer/nccl/welcome.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/tcp/tcp_socket.h"
#include "tests/unit/kvtransfer/nccl_transport_fixture.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A sender that follows no protocol.
class HostileNcclSenderTest : public NcclTransportTest {
 protected:
  void SetUp() override {
    connect_timeout_ = std::chrono::seconds(20);  // it never connects a communicator
    NcclTransportTest::SetUp();
    channel_.reset();
    const std::string address = descriptor_.substr(2, descriptor_.rfind('|') - 2);
    socket_ = std::make_unique<StreamSocket>(*ConnectTcp(*ParseAdvertised(address)));
  }
  void Say(const SidebandFrame& frame) {
    ASSERT_TRUE(socket_->Send(frame).ok());
    DriveFor(milliseconds(20));
    Hear(*socket_, heard_);
  }
  void SayHello() {
    SidebandFrame hello = FrameOf(SidebandType::kHello);
    hello.header.op = destination_->id();
    Say(hello);
    DriveUntil([&] {
      Hear(*socket_, heard_);
      return heard_.Last(SidebandType::kWelcome) != nullptr;
    });
  }
  static SidebandFrame SendOf(uint64_t op, uint64_t bytes) {
    SidebandFrame send = FrameOf(SidebandType::kSend, kKey);
    send.header.op = op;
    send.header.bytes = bytes;
    if (bytes > 0) send.ranges = {{0, bytes}};
    return send;
  }

  std::unique_ptr<StreamSocket> socket_;
  Heard heard_;
};

TEST_F(HostileNcclSenderTest, TheWelcomeStatesTheBuffers) {
  SayHello();
  const SidebandFrame* welcome = heard_.Last(SidebandType::kWelcome);
  ASSERT_NE(welcome, nullptr);
  const auto parsed = ParseNcclWelcome(welcome->text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->buffers, kNcclBuffers);
  EXPECT_EQ(parsed->buffer_bytes, kNcclBufferBytes);
}

TEST_F(HostileNcclSenderTest, MoreWritesThanBuffersAreRefused) {
  SayHello();
  for (uint64_t op = 1; op <= kNcclBuffers; ++op) Say(SendOf(op, 100));
  EXPECT_TRUE(heard_.is_open);
  Say(SendOf(kNcclBuffers + 1, 100));
  EXPECT_FALSE(heard_.is_open);
  EXPECT_THAT(
      log_,
      HasSubstr(fmt::format("at most {} writes of {} bytes", kNcclBuffers, kNcclBufferBytes)));
}

// Otherwise its answers would fill the receiver's memory.
TEST_F(HostileNcclSenderTest, ASenderThatTakesNoAnswersIsNotRead) {
  constexpr uint64_t kUnknownKey = 99;
  constexpr uint64_t kMaxWrites = uint64_t{1} << 20;
  SayHello();
  SidebandFrame send = SendOf(0, 0);
  send.header.key = kUnknownKey;  // an answer is all that the write costs
  const auto goes_on = [&] {
    for (int poll = 0; poll < 200; ++poll) {
      if (!socket_->Flush().ok()) return false;
      if (socket_->waiting() == 0) return true;
      Drive();
    }
    return false;
  };
  while (send.header.op < kMaxWrites && goes_on()) {
    for (int i = 0; i < 1000; ++i) {
      ++send.header.op;
      socket_->Queue(send);
    }
  }
  EXPECT_LT(send.header.op, kMaxWrites);
  heard_ = Heard();
  // All at once: DriveUntil sleeps between two polls.
  const Time limit = SteadyClock().Now() + std::chrono::seconds(30);
  while (heard_.frames.size() < send.header.op && SteadyClock().Now() < limit) {
    (void)socket_->Flush();
    Hear(*socket_, heard_);
    Drive();
  }
  EXPECT_EQ(heard_.frames.size(), send.header.op);
  EXPECT_TRUE(heard_.is_open);
}

TEST_F(HostileNcclSenderTest, WhatBreaksTheProtocolEndsTheConnection) {
  SidebandFrame unknown_region = FrameOf(SidebandType::kHello);
  unknown_region.header.op = 99;
  SidebandFrame short_runs = SendOf(1, 100);
  short_runs.header.bytes = 200;
  const std::vector<std::vector<SidebandFrame>> talks = {
      {unknown_region},
      {FrameOf(SidebandType::kBye)},
      {SendOf(1, 0)},
      {FrameOf(SidebandType::kHello), FrameOf(SidebandType::kHello)},
      {FrameOf(SidebandType::kHello), FrameOf(SidebandType::kAsk, kKey)},
      {FrameOf(SidebandType::kHello), short_runs},
      {FrameOf(SidebandType::kHello), SendOf(1, kNcclBufferBytes + 1)},
      {FrameOf(SidebandType::kHello), SendOf(2, 0), SendOf(2, 0)},
      {FrameOf(SidebandType::kHello), SendOf(1, uint64_t{1} << 40)},
  };
  const std::string address = descriptor_.substr(2, descriptor_.rfind('|') - 2);
  for (size_t i = 0; i < talks.size(); ++i) {
    socket_ = std::make_unique<StreamSocket>(*ConnectTcp(*ParseAdvertised(address)));
    heard_ = Heard();
    for (const SidebandFrame& frame : talks[i]) Say(frame);
    DriveUntil([&] {
      (void)socket_->Flush();
      Hear(*socket_, heard_);
      return !heard_.is_open;
    });
    EXPECT_FALSE(heard_.is_open) << "talk " << i;
  }
  EXPECT_EQ(CountArrivals(Arrival::Kind::kArrived), 1u) << "the empty write before its repetition";
  socket_.reset();
  DriveUntil([&] { return receiver_->connection_count() == 0 && receiver_->aborting() == 0; });
  EXPECT_EQ(receiving_gpu_.pairs().alive(), 0);
}

TEST(NcclWelcomeTest, ComesBackAsItWasAndNothingElseIsTaken) {
  const NcclWelcome welcome{8, 4096, std::string("a\0b", 3)};
  const std::string text = EncodeNcclWelcome(welcome);
  EXPECT_EQ(text, "1|8|4096|610062");
  EXPECT_EQ(*ParseNcclWelcome(text), welcome);
  const std::string longest = "1|8|4096|" + std::string(2 * kMaxPairIdBytes, 'a');
  EXPECT_TRUE(ParseNcclWelcome(longest).ok());
  for (const std::string& bad : {std::string(),
                                 std::string("2|8|4096|61"),
                                 std::string("1|0|4096|61"),
                                 std::string("1|8|0|61"),
                                 std::string("1|-8|4096|61"),
                                 std::string("1|1025|4096|61"),
                                 std::string("1|8|1099511627776|61"),
                                 std::string("1|8|4096|"),
                                 std::string("1|8|4096"),
                                 std::string("1|8|4096|6"),
                                 std::string("1|8|4096|6g"),
                                 longest + "aa"}) {
    EXPECT_EQ(ParseNcclWelcome(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace baton
