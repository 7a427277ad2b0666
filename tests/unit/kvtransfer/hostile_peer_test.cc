#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/tcp/tcp_address.h"
#include "kvtransfer/tcp/tcp_transport.h"
#include "kvtransfer/wire/frame.h"
#include "tests/conformance/host_buffer.h"

namespace baton {
namespace {

constexpr uint64_t kKey = 99;

template <class T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Peers that send arbitrary bytes to a tcp endpoint.
class HostilePeerTest : public testing::Test {
 protected:
  void SetUp() override {
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    options.max_connections = 8;
    options.stall_timeout = std::chrono::seconds(10);
    transport_ =
        *TcpTransport::Create(options, nullptr, [this](std::string_view line) { log_ += line; });
    region_ = *transport_->Register(arena_);
    address_ = *ParseTcpAddress(transport_->Listen()->substr(2));
    ASSERT_TRUE(transport_->OpenWindow({kKey, region_->id(), {{1000, 1000}}}).ok());
  }
  void TearDown() override {
    transport_->CloseWindow(kKey);
    region_.reset();
  }

  UniqueFd Connect() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(
        ::connect(
            socket.get(), reinterpret_cast<const sockaddr*>(&address_.storage), address_.length),
        0);
    return socket;
  }
  void Send(const UniqueFd& socket, const std::string& bytes) {
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // How often `text` occurs in the log.
  size_t Logged(std::string_view text) const {
    size_t count = 0;
    for (size_t at = log_.find(text); at != std::string::npos; at = log_.find(text, at + 1)) {
      ++count;
    }
    return count;
  }
  size_t connections() const {
    return static_cast<FrameTransport*>(transport_.get())->connection_count();
  }
  // Polls often enough that nothing more arrives. The time is the test's own.
  void Serve() {
    for (int i = 0; i < 50; ++i) {
      std::array<Arrival, 8> arrivals;
      arrived_ += transport_->Poll(now_, arrivals);
    }
  }
  std::string GoodPreface() const {
    Preface preface;
    preface.region = region_->id();
    return Bytes(preface);
  }
  // A frame of one run, followed by a payload of run.bytes bytes.
  static std::string Frame(WriteHeader header, WriteRun run) {
    header.run_count = 1;
    return Bytes(header) + Bytes(run) + std::string(run.bytes, 'p');
  }

  HostBuffer arena_{4096};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  TcpAddress address_;
  Time now_{std::chrono::hours(1)};
  std::string log_;
  size_t arrived_ = 0;
};

TEST_F(HostilePeerTest, GarbageIsCutOffWithAReason) {
  const UniqueFd socket = Connect();
  Send(socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  Serve();
  EXPECT_EQ(connections(), 0u);
  EXPECT_NE(log_.find("opens with"), std::string::npos) << log_;
}

TEST_F(HostilePeerTest, BadFramesAreCutOff) {
  WriteHeader bad_magic;
  bad_magic.magic = 1;
  WriteHeader many_runs;
  many_runs.run_count = ~0u;
  WriteHeader huge;
  huge.payload_bytes = ~uint64_t{0};
  WriteHeader terabyte;
  terabyte.payload_bytes = uint64_t{1} << 40;
  terabyte.run_count = 1;
  WriteHeader odd_granule;
  odd_granule.payload_bytes = 10;
  odd_granule.granule = 3;
  WriteHeader mismatch;
  mismatch.payload_bytes = 5;
  mismatch.run_count = 1;
  const std::vector<std::string> frames = {Bytes(bad_magic),
                                           Bytes(many_runs),
                                           Bytes(huge),
                                           Bytes(terabyte),
                                           Bytes(odd_granule),
                                           Bytes(mismatch) + Bytes(WriteRun{0, 1000, 6})};
  for (const std::string& frame : frames) {
    const UniqueFd socket = Connect();
    Send(socket, GoodPreface() + frame);
    Serve();
    EXPECT_EQ(connections(), 0u);
  }
  EXPECT_EQ(arrived_, 0u);
}

TEST_F(HostilePeerTest, WritesWithoutTheRightTouchNothing) {
  const UniqueFd socket = Connect();
  WriteHeader header;
  header.payload_bytes = 100;
  header.window_key = kKey + 1;
  Send(socket, GoodPreface() + Frame(header, {0, 1000, 100}));
  header.window_key = kKey;
  Send(socket, Frame(header, {0, 950, 100}) + Frame(header, {0, ~uint64_t{0} - 50, 100}));
  Serve();
  EXPECT_EQ(arrived_, 0u);
  EXPECT_EQ(connections(), 1u);
  for (size_t i = 0; i < arena_.size(); ++i) ASSERT_EQ(arena_.data()[i], std::byte{0});
  Send(socket, Frame(header, {0, 1000, 100}));
  Serve();
  EXPECT_EQ(arrived_, 1u);
  EXPECT_EQ(arena_.data()[1000], std::byte{'p'});
}

TEST_F(HostilePeerTest, SilentAndHalfSentPeersAreCutOff) {
  const UniqueFd silent = Connect();
  const UniqueFd half = Connect();
  WriteHeader header;
  header.payload_bytes = 100;
  header.window_key = kKey;
  Send(half, (GoodPreface() + Frame(header, {0, 1000, 100})).substr(0, 120));
  const UniqueFd idle = Connect();
  Send(idle, GoodPreface());
  Serve();
  EXPECT_EQ(connections(), 3u);
  now_ += std::chrono::seconds(11);
  Serve();
  // Between two frames a peer may be silent for any time.
  EXPECT_EQ(connections(), 1u);
  EXPECT_NE(log_.find("before the preface"), std::string::npos) << log_;
  EXPECT_NE(log_.find("in the middle of a frame"), std::string::npos) << log_;
}

// As Transport::Reaches does in shm and cuda_ipc.
TEST_F(HostilePeerTest, APeerThatOnlyTriesToConnectIsNoFault) {
  UniqueFd probe = Connect();
  Serve();
  EXPECT_EQ(connections(), 1u);
  probe.Reset();
  Serve();
  EXPECT_EQ(connections(), 0u);
  EXPECT_EQ(log_, "");
}

TEST_F(HostilePeerTest, TooManyConnectionsAreTurnedAway) {
  std::vector<UniqueFd> sockets;
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(Connect());
    if (i < 8) Send(sockets.back(), GoodPreface());
    if (i % 20 == 0 || i < 8) Serve();
  }
  Serve();
  EXPECT_EQ(connections(), 8u);
  EXPECT_EQ(Logged("connection turned away"), 1u) << log_;
  sockets.clear();
  Serve();
  EXPECT_EQ(connections(), 0u);
  const UniqueFd later = Connect();
  Serve();
  EXPECT_EQ(connections(), 1u);
}

TEST_F(HostilePeerTest, TheOldestStrangerGivesWayToANewConnection) {
  const UniqueFd first = Connect();
  Send(first, GoodPreface());
  Serve();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 7; ++i) {
    now_ += std::chrono::milliseconds(1);
    strangers.push_back(Connect());
    Serve();
  }
  const UniqueFd later = Connect();
  Serve();
  EXPECT_EQ(connections(), 8u);
  char byte = 0;
  EXPECT_EQ(::recv(strangers[0].get(), &byte, 1, MSG_DONTWAIT), 0) << "it has not given way";
  EXPECT_LT(::recv(strangers[1].get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_LT(::recv(first.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(Logged("closed for a new one"), 1u) << log_;
}

TEST_F(HostilePeerTest, AStrangerWhoSendsSlowlyGetsNoMoreTime) {
  const UniqueFd slow = Connect();
  const std::string preface = GoodPreface();
  for (size_t i = 0; i < 3; ++i) {
    Send(slow, preface.substr(i, 1));
    Serve();
    EXPECT_EQ(connections(), 1u);
    now_ += std::chrono::seconds(4);
  }
  Serve();
  EXPECT_EQ(connections(), 0u);
  EXPECT_EQ(Logged("before the preface"), 1u) << log_;
}

TEST_F(HostilePeerTest, ALackOfDescriptorsIsLoggedOnceAMinute) {
  const UniqueFd waiting = Connect();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit none = limit;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  for (int i = 0; i < 59; ++i) {
    Serve();
    now_ += std::chrono::seconds(1);
  }
  const size_t in_the_first_minute = Logged("no new KV data connections");
  now_ += std::chrono::seconds(1);
  Serve();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(in_the_first_minute, 1u) << log_;
  EXPECT_EQ(Logged("no new KV data connections"), 2u) << log_;
  EXPECT_EQ(Logged("(60 so far)"), 1u) << log_;
  now_ += std::chrono::seconds(1);
  Serve();
  EXPECT_EQ(connections(), 1u);
}

TEST_F(HostilePeerTest, FlippedBytesNeverReachOtherMemory) {
  std::mt19937_64 random(7);
  WriteHeader header;
  header.payload_bytes = 100;
  header.window_key = kKey;
  const std::string good = GoodPreface() + Frame(header, {0, 1000, 100});
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    for (int flips = 0; flips < 3; ++flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const UniqueFd socket = Connect();
    Send(socket, bytes);
    ::shutdown(socket.get(), SHUT_WR);
    Serve();
  }
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(arena_.data()[i], std::byte{0}) << i;
  for (size_t i = 2000; i < arena_.size(); ++i) ASSERT_EQ(arena_.data()[i], std::byte{0}) << i;
}

}  // namespace
}  // namespace baton
