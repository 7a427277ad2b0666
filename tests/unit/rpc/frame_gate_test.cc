#include "common/rpc/frame_gate.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/http2_flood.h"
#include "tests/support/http2_frames.h"

namespace baton {
namespace {

using http2::Frame;
using http2::Header;
using http2::Line;
using http2::Number;
using ::testing::IsEmpty;

constexpr size_t kLoad = size_t{1} << 20;
constexpr auto kSecond = std::chrono::seconds(1);

std::string Request(uint32_t stream, const std::string& more = "") {
  return Frame(http2::kHeaders, http2::kEndHeaders, stream, Header("POST", "/a/b") + more);
}
std::string Reset(uint32_t stream, uint32_t code = 8) {
  return Frame(http2::kResetStream, http2::kNone, stream, Number(code, 4));
}
std::string Data(uint32_t stream, size_t bytes, int flags = http2::kNone) {
  return Frame(http2::kData, flags, stream, std::string(bytes, 'd'));
}
// What ends a call: a header that ends its stream.
std::string Trailers(uint32_t stream) {
  return Frame(
      http2::kHeaders, http2::kEndHeaders | http2::kEndStream, stream, Line(":status", "200"));
}

// A connection of a port whose strangers may hold kLoad bytes.
struct Connection {
  explicit Connection(StrangerLoad& load) : gate(client, load, [this] { ended = true; }) {
    EXPECT_TRUE(Send(http2::Greeting()));
  }
  // True when all bytes may be passed on.
  bool Send(const std::string& bytes) { return gate.FromClient(bytes, now) == bytes.size(); }
  void Prove() { client.SetProven(); }

  RemoteClient client{"ipv4:127.0.0.1:1", ""};
  bool ended = false;
  Time now{std::chrono::hours(1)};
  FrameGate gate;
};

class FrameGateTest : public ::testing::Test {
 protected:
  // How often `frames(i)` can be sent, at most `most` times.
  template <class Frames>
  static int Count(Connection& connection, int most, const Frames& frames) {
    for (int i = 0; i < most; ++i) {
      if (!connection.Send(frames(static_cast<uint32_t>(i)))) return i;
    }
    return most;
  }

  StrangerLoad load_{kLoad};
  Connection one_{load_};
};

TEST_F(FrameGateTest, OnlyHttp2Passes) {
  for (const std::string& wrong :
       {std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string(100, '\xff'),
        std::string(http2::kPreface) + Frame(http2::kPing, 0, 0, "12345678")}) {
    RemoteClient client("", "");
    FrameGate gate(client, load_, [] {});
    EXPECT_EQ(gate.FromClient(wrong, one_.now), 0u);
    EXPECT_EQ(gate.failure(), FrameGate::kNotHttp2);
    EXPECT_FALSE(gate.greeted());
  }
}

// A connection passes however its bytes are cut, and each flood ends however its bytes are cut.
TEST_F(FrameGateTest, TheCutsOfTheBytesDoNotMatter) {
  const std::string good =
      http2::Greeting() +
      Frame(http2::kHeaders, 0x20, 1, std::string(5, 'p') + Header("POST", "/a/b")) +
      Frame(http2::kContinuation, http2::kEndHeaders, 1, Line("a", "b")) + Data(1, 100) +
      Data(1, 0, http2::kEndStream) + Frame(http2::kPing, 0, 0, "12345678") + Reset(1) +
      Request(3, Line("c", std::string(300, 'c')));
  for (size_t cut = 0; cut <= good.size(); ++cut) {
    StrangerLoad load(kLoad);
    RemoteClient client("", "");
    FrameGate gate(client, load, [] {});
    EXPECT_EQ(gate.FromClient(good.substr(0, cut), one_.now), cut);
    EXPECT_EQ(gate.FromClient(good.substr(cut), one_.now), good.size() - cut) << cut;
    EXPECT_EQ(gate.failure(), "") << cut;
  }
  for (const http2::Flood& flood : http2::Floods("/a/b")) {
    for (const size_t piece : {1u, 7u, 100'000u}) {
      StrangerLoad load(kLoad);
      Connection connection(load);
      std::string bytes = flood.first;
      size_t passed = 0;
      for (uint32_t turn = 0; turn < 20 && connection.gate.failure().empty(); ++turn) {
        bytes += flood.next(turn);
        for (size_t at = 0; at < bytes.size() && connection.gate.failure().empty(); at += piece) {
          passed += connection.gate.FromClient(bytes.substr(at, piece), connection.now);
        }
        bytes.clear();
      }
      EXPECT_NE(connection.gate.failure(), "") << flood.name << " in pieces of " << piece;
      EXPECT_LE(load.bytes(), kLoad) << flood.name;
      EXPECT_LE(passed, kLoad) << flood.name;
    }
  }
}

TEST_F(FrameGateTest, AHeaderIsMeasuredAsGrpcWillHoldIt) {
  // One value of 4,000 bytes, and then its number in the dynamic table.
  std::string block = Line("x", std::string(4000, 'v')).replace(0, 1, "\x40");
  EXPECT_TRUE(one_.Send(Request(1, block + std::string(10, '\xbe'))));
  // Also in another header of the connection.
  EXPECT_FALSE(one_.Send(Request(3, std::string(20, '\xbe'))));
  EXPECT_EQ(one_.gate.failure(), FrameGate::kHeaderTooLarge);
}

TEST_F(FrameGateTest, AProvenClientHasNoLargerHeaders) {
  one_.Prove();
  std::string lines;
  for (int i = 0; i < 600; ++i) lines += Line("a", "");
  EXPECT_FALSE(one_.Send(Request(1, lines)));
  EXPECT_EQ(one_.gate.failure(), FrameGate::kHeaderTooLarge);
  Connection other(load_);
  other.Prove();
  EXPECT_TRUE(other.Send(Frame(http2::kHeaders, 0, 1, Header("POST", "/a/b"))));
  const std::string more = Frame(http2::kContinuation, 0, 1, "");
  EXPECT_EQ(Count(other, 100, [&](uint32_t) { return more; }), 6);
  EXPECT_EQ(other.gate.failure(), FrameGate::kHeaderTooLarge);
}

// What gRPC would understand in another way than the gate.
TEST_F(FrameGateTest, FramesThatGrpcReadsDifferentlyEndTheConnection) {
  const std::string begun = Frame(http2::kHeaders, 0, 1, Header("POST", "/a/b"));
  for (const std::string& wrong :
       {Frame(
            http2::kHeaders, http2::kEndHeaders | http2::kPadded, 1, "\x01" + Line("a", "b") + "p"),
        Frame(http2::kHeaders, http2::kEndHeaders, 2, Header("POST", "/a/b")),
        Frame(http2::kHeaders, http2::kEndHeaders | 0x20, 1, "abc"),
        Frame(http2::kContinuation, http2::kEndHeaders, 1, Line("a", "b")),
        begun + Data(1, 1),
        begun + Frame(http2::kContinuation, http2::kEndHeaders, 3, Line("a", "b")),
        Frame(http2::kSettings, 0, 0, std::string(16'390, 's'))}) {
    Connection connection(load_);
    EXPECT_FALSE(connection.Send(wrong));
    EXPECT_EQ(connection.gate.failure(), FrameGate::kBreaksProtocol);
  }
  EXPECT_FALSE(one_.Send(Frame(http2::kHeaders, http2::kEndHeaders, 1, "\xff\xff\xff\xff\xff")));
  EXPECT_EQ(one_.gate.failure(), FrameGate::kHeaderTooLarge);
}

TEST_F(FrameGateTest, AStrangerMayResetFewRequests) {
  const auto reset = [](uint32_t i) { return Request(2 * i + 1) + Reset(2 * i + 1); };
  EXPECT_EQ(Count(one_, 1000, reset), 200);
  EXPECT_EQ(one_.gate.failure(), FrameGate::kTooManyResets);
}

TEST_F(FrameGateTest, AllStrangersOfAPortTogetherMayResetFewRequests) {
  int all = 0;
  for (int i = 0; i < 10; ++i) {
    Connection connection(load_);
    all += Count(connection, 100, [](uint32_t n) { return Request(2 * n + 1) + Reset(2 * n + 1); });
  }
  EXPECT_EQ(all, 500);
}

// A proxy cancels what its clients cancel.
TEST_F(FrameGateTest, AProvenClientMayCancel500CallsASecond) {
  EXPECT_TRUE(one_.Send(Request(1)));
  one_.Prove();
  for (uint32_t i = 0; i < 10 * 500; ++i) {
    one_.now += kSecond / 500;
    ASSERT_TRUE(one_.Send(Request(2 * i + 3) + Reset(2 * i + 3))) << one_.gate.failure();
  }
  EXPECT_LT(
      Count(
          one_, 20'000, [](uint32_t i) { return Request(2 * i + 20'001) + Reset(2 * i + 20'001); }),
      10'000);
}

// CVE-2025-8671: the server resets what the client has made it reset.
TEST_F(FrameGateTest, RequestsThatTheServerResetsCount) {
  int resets = 0;
  for (uint32_t stream = 1; one_.gate.failure().empty() && resets < 1000; stream += 2, ++resets) {
    one_.Send(Request(stream));
    one_.gate.FromServer(Reset(stream, 0), one_.now);  // the answer has ended before the request
    EXPECT_EQ(one_.gate.failure(), "");
    one_.gate.FromServer(Reset(stream, 1), one_.now);
  }
  EXPECT_EQ(resets, 201);
  EXPECT_EQ(one_.gate.failure(), FrameGate::kTooManyResets);
}

TEST_F(FrameGateTest, AStrangerMaySendFewRequests) {
  int sent = 0;
  for (uint32_t stream = 1; one_.Send(Request(stream)); stream += 2, ++sent) {
    one_.gate.FromServer(Trailers(stream), one_.now);
  }
  EXPECT_EQ(sent, 500);
  EXPECT_EQ(one_.gate.failure(), FrameGate::kTooManyRequests);
}

TEST_F(FrameGateTest, AProvenClientMaySendManyRequests) {
  one_.Prove();
  EXPECT_EQ(Count(one_, 5000, [](uint32_t i) { return Request(2 * i + 1); }), 5000);
  EXPECT_EQ(load_.bytes(), 0u);
}

TEST_F(FrameGateTest, FramesWithoutUseAreBounded) {
  const auto idle = {Frame(http2::kPing, 0, 0, "12345678"),
                     Frame(http2::kSettings, 0, 0, ""),
                     Frame(http2::kPriority, 0, 1, std::string(5, 'p')),
                     Frame(http2::kWindowUpdate, 0, 0, Number(1, 4)),
                     Frame(http2::kGoAway, 0, 0, std::string(8, '\0')),
                     Frame(0x42, 0, 0, "unknown")};
  for (const std::string& frame : idle) {
    Connection connection(load_);
    EXPECT_EQ(Count(connection, 1000, [&](uint32_t) { return frame; }), 499) << int{frame[3]};
    EXPECT_EQ(connection.gate.failure(), FrameGate::kTooManyFrames);
    Connection proven(load_);
    proven.Prove();
    EXPECT_EQ(Count(proven, 20'000, [&](uint32_t) { return frame; }), 10'000) << int{frame[3]};
  }
  for (const size_t bytes : {0u, 1u, 63u}) {
    Connection connection(load_);
    connection.Send(Request(1));
    EXPECT_EQ(Count(connection, 1000, [&](uint32_t) { return Data(1, bytes); }), 500);
    EXPECT_EQ(connection.gate.failure(), FrameGate::kTooManyFrames);
  }
  one_.Prove();
  EXPECT_EQ(Count(one_, 20'000, [](uint32_t) { return Data(1, 1); }), 20'000);
  EXPECT_EQ(Count(one_, 20'000, [](uint32_t) { return Data(1, 0); }), 10'000);
}

// A client that reads an answer opens its windows and measures the way.
TEST_F(FrameGateTest, WhatAnswersTheServersDataIsFree) {
  const std::string answer =
      Frame(http2::kWindowUpdate, 0, 0, Number(1, 4)) + Frame(http2::kPing, 0, 0, "12345678");
  for (int i = 0; i < 2000; ++i) {
    one_.gate.FromServer(Data(1, 10), one_.now);
    ASSERT_TRUE(one_.Send(answer)) << i;
  }
}

TEST_F(FrameGateTest, StrangersHoldABoundedPartOfTheMemory) {
  Connection small(load_);
  EXPECT_TRUE(small.Send(Request(1) + Data(1, 1000)));
  // Open requests and data that have not been answered.
  for (int i = 0; i < 100 && !one_.ended; ++i) one_.Send(Data(1, 16'000));
  EXPECT_FALSE(one_.ended) << "data of no request is not held";
  one_.Send(Request(1));
  for (int i = 0; i < 100 && !one_.ended; ++i) one_.Send(Data(1, 16'000));
  EXPECT_TRUE(one_.ended);
  EXPECT_EQ(one_.gate.failure(), FrameGate::kTooMuchMemory);
  // The other one holds less, and goes on.
  EXPECT_TRUE(small.Send(Data(1, 1000)));
  EXPECT_FALSE(small.ended);
  EXPECT_LT(load_.bytes(), size_t{64} << 10);
}

TEST_F(FrameGateTest, TheEndOfARequestOrAProofFreesWhatItHeld) {
  const std::string ends[] = {Trailers(1), Data(1, 0, http2::kEndStream), Reset(1, 0)};
  for (const std::string& end : ends) {
    Connection connection(load_);
    connection.Send(Request(1) + Data(1, 1000));
    EXPECT_GT(load_.bytes(), 17'000u);
    for (const char byte : end) connection.gate.FromServer(std::string(1, byte), connection.now);
    EXPECT_EQ(load_.bytes(), 0u);
  }
  {
    Connection connection(load_);
    connection.Send(Request(1) + Data(1, 1000));
    EXPECT_GT(load_.bytes(), 17'000u);
  }
  EXPECT_EQ(load_.bytes(), 0u) << "a connection that ends holds nothing";
  one_.Send(Request(1) + Data(1, 1000) + Reset(1));
  EXPECT_EQ(load_.bytes(), 0u);
  one_.Send(Request(3) + Data(3, 1000));
  one_.Prove();
  EXPECT_TRUE(one_.Send(Data(3, 1000)));
  EXPECT_EQ(load_.bytes(), 0u);
}

// A client may have proven itself since its last bytes.
TEST_F(FrameGateTest, AProvenClientIsNotTheOneThatIsEnded) {
  one_.Send(Request(1));
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(one_.Send(Data(1, 16'000)));
  one_.Prove();
  Connection other(load_);
  other.Send(Request(1));
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(other.Send(Data(1, 16'000)));
  EXPECT_FALSE(one_.ended);
}

}  // namespace
}  // namespace baton
