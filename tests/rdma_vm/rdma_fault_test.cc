// Faults on the soft-RoCE devices of the guest: handshakes that are garbage, and a link that goes
// down and comes back.

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/data_plane/make_transport.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/tcp/tcp_socket.h"
#include "kvtransfer/verbs/handshake.h"
#include "tests/conformance/test_memory.h"
#include "tests/conformance/transport_conformance.h"

namespace baton {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 20;
constexpr uint64_t kKey = 7;

size_t CountOpenFiles() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

// Runs a command of the guest.
void RunCommand(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}
void TakeDown(int pair) {
  RunCommand(fmt::format("ip link set veth{} down", 2 * pair));
}
// Linux forgets the routes and neighbours of a link that went down.
void BringUp(int pair) {
  RunCommand(fmt::format("ip link set veth{} up", 2 * pair));
  RunCommand(fmt::format("bash -c '. /network.sh && route_pair {}'", pair));
}

class RdmaFaultTest : public testing::Test {
 protected:
  using Devices = std::vector<std::string>;

  explicit RdmaFaultTest(const Devices& senders = {"rxe0"}, const Devices& receivers = {"rxe1"})
      : sender_(On(senders)), receiver_(On(receivers)) {
    FillPattern({from_.buffer().data(), kArenaBytes}, 3);
    source_ = *sender_->Register(from_.buffer());
    destination_ = *receiver_->Register(to_.buffer());
    descriptor_ = *receiver_->Listen();
    EXPECT_TRUE(receiver_->OpenWindow({kKey, destination_->id(), {{0, kArenaBytes}}}).ok());
    channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  }
  ~RdmaFaultTest() override {
    channel_.reset();
    receiver_->CloseWindow(kKey);
    DriveUntil([&] { return closed_; });
    source_.reset();
    destination_.reset();
  }

  std::unique_ptr<Transport> On(const Devices& devices) {
    KvTransferOptions options;
    options.transport.listen_address = "127.0.0.1:0";
    options.transport.fence_timeout = std::chrono::milliseconds(200);
    options.transport.verbs.devices = devices;
    options.log = [this](auto line) { log_ += line; };
    return *MakeTransport("verbs", options);
  }
  void Drive() {
    std::array<WriteEvent, 16> events;
    if (channel_) {
      const size_t count = channel_->Poll(SteadyClock().Now(), events);
      for (const WriteEvent& event : std::span(events).first(count)) {
        ++(event.kind == WriteEvent::Kind::kDone ? done_ : failed_);
      }
    }
    DriveReceiver();
  }
  void DriveReceiver() {
    std::array<Arrival, 16> arrivals;
    const size_t count = receiver_->Poll(SteadyClock().Now(), arrivals);
    for (const Arrival& arrival : std::span(arrivals).first(count)) {
      closed_ |= arrival.kind == Arrival::Kind::kClosed;
    }
  }
  void DriveUntil(const std::function<bool()>& done) {
    const Time limit = SteadyClock().Now() + std::chrono::seconds(30);
    while (!done()) {
      ASSERT_LT(SteadyClock().Now(), limit) << "nothing moves any more; " << log_;
      Drive();
    }
  }
  void Write(uint64_t offset, uint64_t bytes) {
    const WriteRun run{offset, offset, bytes};
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = kKey;
    ASSERT_TRUE(channel_->PostWrite(op).ok());
  }
  // Expects that a write over the current channel arrives.
  void ExpectThatAWriteArrives() {
    done_ = 0;
    Write(0, kArenaBytes);
    DriveUntil([&] { return done_ == 1 || failed_ > 0; });
    EXPECT_EQ(done_, 1);
    EXPECT_EQ(to_.GetAll(), from_.GetAll());
  }

  std::string log_;
  TestMemory from_{HostDevice(), kArenaBytes};
  TestMemory to_{HostDevice(), kArenaBytes};
  std::unique_ptr<Transport> sender_;
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Region> source_;
  std::unique_ptr<Region> destination_;
  std::string descriptor_;
  std::unique_ptr<Channel> channel_;
  int done_ = 0;
  int failed_ = 0;
  bool closed_ = false;
};

// Sends `greeting` in a hello, and returns whether the endpoint answered with a welcome.
bool IsWelcome(const std::string& descriptor,
               const std::string& greeting,
               const std::function<void()>& drive) {
  const TcpAddress address = *ParseAdvertised(ParseVerbsDescriptor(descriptor)->address);
  StreamSocket socket(*ConnectTcp(address));
  SidebandFrame hello;
  hello.header.type = SidebandType::kHello;
  hello.text = greeting;
  if (!socket.Send(hello).ok()) return false;
  while (true) {
    drive();
    if (!socket.Flush().ok()) return false;
    const auto answer = socket.Receive();
    if (!answer.ok()) return false;
    if (answer->has_value()) return (*answer)->header.type == SidebandType::kWelcome;
  }
}

TEST_F(RdmaFaultTest, AGarbageHandshakeIsRefusedAndLeaksNothing) {
  ExpectThatAWriteArrives();
  Handshake valid;
  RailAddress rail;
  rail.port = ParseVerbsDescriptor(descriptor_)->rails[0];
  rail.port.mtu = 3;
  rail.queue_pairs = {{17, 18}};
  valid.rails = {rail};
  const auto drive = [&] { Drive(); };
  EXPECT_TRUE(IsWelcome(descriptor_, EncodeHandshake(valid), drive)) << log_;
  for (int i = 0; i < 100; ++i) Drive();
  const size_t files = CountOpenFiles();

  std::mt19937 random(5);
  std::string bytes = EncodeHandshake(valid);
  for (int i = 0; i < 100; ++i) {
    std::string garbage(random() % 200, '\0');
    for (char& c : garbage) c = static_cast<char>(random());
    EXPECT_FALSE(IsWelcome(descriptor_, garbage, drive));
    EXPECT_FALSE(IsWelcome(descriptor_, bytes.substr(0, random() % bytes.size()), drive));
  }
  valid.rails[0].index = 5;
  EXPECT_FALSE(IsWelcome(descriptor_, EncodeHandshake(valid), drive));
  EXPECT_NE(log_.find("wants rail 5; this side has 1"), std::string::npos) << log_;
  valid.rails[0].index = 0;
  valid.rails[0].port.kind = PortKind::kInfiniBand;
  EXPECT_FALSE(IsWelcome(descriptor_, EncodeHandshake(valid), drive));
  EXPECT_NE(log_.find("is RoCE v2 over IPv4 here and InfiniBand at the peer"), std::string::npos)
      << log_;

  for (int i = 0; i < 100; ++i) Drive();
  EXPECT_EQ(CountOpenFiles(), files);
  ExpectThatAWriteArrives();
}

TEST_F(RdmaFaultTest, ALinkThatIsDownForAMomentDelaysWrites) {
  ExpectThatAWriteArrives();
  TakeDown(0);
  to_.Fill(std::byte{0});
  Write(0, kArenaBytes);
  for (int i = 0; i < 10; ++i) Drive();
  BringUp(0);
  DriveUntil([&] { return done_ == 2 || failed_ > 0; });
  if (failed_ == 0) {
    EXPECT_EQ(to_.GetAll(), from_.GetAll());
    return;
  }
  // The device gave up before the link was back.
  failed_ = 0;
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  ExpectThatAWriteArrives();
}

TEST_F(RdmaFaultTest, ALinkThatStaysDownFailsWrites) {
  ExpectThatAWriteArrives();
  TakeDown(0);
  for (uint64_t i = 0; i < 8; ++i) Write(i << 17, 1 << 17);
  DriveUntil([&] { return failed_ == 8; });
  EXPECT_EQ(channel_->status().code(), StatusCode::kUnavailable);
  // The receiver needs no word of the sender to close the window.
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return closed_; });
  to_.Fill(std::byte{0x55});
  BringUp(0);
  for (int i = 0; i < 1000; ++i) Drive();
  for (const std::byte byte : to_.GetAll()) ASSERT_EQ(byte, std::byte{0x55});
  closed_ = false;
  ASSERT_TRUE(receiver_->OpenWindow({kKey, destination_->id(), {{0, kArenaBytes}}}).ok());
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  failed_ = 0;
  ExpectThatAWriteArrives();
}

// The network holds the packets of a write back until the receiver has fenced the sender, which is
// stopped, and has given the memory away.
TEST_F(RdmaFaultTest, ADelayedWriteDoesNotLandAfterTheFence) {
  ExpectThatAWriteArrives();
  RunCommand("tc qdisc add dev veth0 root netem delay 1500ms");
  Write(0, kArenaBytes / 8);
  for (int i = 0; i < 20; ++i) Drive();
  receiver_->CloseWindow(kKey);
  const Time start = SteadyClock().Now();
  while (!closed_ && SteadyClock().Now() < start + std::chrono::seconds(1)) DriveReceiver();
  ASSERT_TRUE(closed_) << "the fence came too late for this test";
  to_.Fill(std::byte{0x55});
  while (SteadyClock().Now() < start + std::chrono::seconds(3)) DriveReceiver();
  for (const std::byte byte : to_.GetAll()) ASSERT_EQ(byte, std::byte{0x55});
  RunCommand("tc qdisc del dev veth0 root");
  closed_ = false;
  ASSERT_TRUE(receiver_->OpenWindow({kKey, destination_->id(), {{0, kArenaBytes}}}).ok());
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  failed_ = 0;
  ExpectThatAWriteArrives();
}

class RdmaTwoRailsTest : public RdmaFaultTest {
 protected:
  RdmaTwoRailsTest() : RdmaFaultTest({"rxe0", "rxe2"}, {"rxe1", "rxe3"}) {}
};

TEST_F(RdmaTwoRailsTest, ADeadRailIsLeftOutAndTriedAgain) {
  ExpectThatAWriteArrives();
  TakeDown(1);
  for (uint64_t i = 0; i < 8; ++i) Write(i << 17, 1 << 17);
  DriveUntil([&] { return !channel_->status().ok(); });
  EXPECT_THAT(std::string(Message(channel_->status())), testing::HasSubstr("rxe2 port 1"));
  DriveUntil([&] { return done_ + failed_ == 9; });
  failed_ = 0;
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  ExpectThatAWriteArrives();
  BringUp(1);
  channel_ = *sender_->Connect(*source_, descriptor_, destination_->id());
  ExpectThatAWriteArrives();
}

}  // namespace
}  // namespace baton
