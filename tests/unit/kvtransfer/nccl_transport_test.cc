// The transport "nccl" with communicators that hang, fail, never connect, and whose abort takes
// long; and peers that break the protocol.

#include "kvtransfer/nccl/nccl_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kvtransfer/nccl/staged_pair.h"
#include "kvtransfer/nccl/welcome.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/tcp/tcp_socket.h"
#include "tests/conformance/test_memory.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr uint64_t kWriteBytes = uint64_t{1} << 16;
constexpr size_t kArenaBytes = size_t{4} << 20;

class NcclTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    from_.Put(0, original_);
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    options.fence_timeout = kFenceTimeout;
    options.nccl.connect_timeout = milliseconds(400);
    options.nccl.stall_timeout = milliseconds(200);
    sender_ = Make(options, sending_gpu_);
    // The sender's watchdog is the first.
    options.nccl.connect_timeout *= 2;
    options.nccl.stall_timeout *= 2;
    receiver_ = Make(options, receiving_gpu_);
    source_ = *sender_->Register(from_.buffer());
    destination_ = *receiver_->Register(to_.buffer());
    descriptor_ = *receiver_->Listen();
    Connect();
    Open(kKey);
  }
  void TearDown() override {
    SetFaults({});
    channel_.reset();
    for (uint64_t key = kKey; key < kKey + 4; ++key) receiver_->CloseWindow(key);
    source_.reset();
    destination_.reset();
  }

  std::unique_ptr<NcclTransport> Make(const TransportOptions& options, FakeGpu& gpu) {
    auto transport = NcclTransport::Create(
        options, &gpu, [this](std::string_view line) { log_ += std::string(line) + "\n"; });
    return std::unique_ptr<NcclTransport>(static_cast<NcclTransport*>(transport->release()));
  }
  void Connect() { channel_ = *sender_->Connect(*source_, descriptor_, destination_->id()); }
  void Open(uint64_t key) {
    ASSERT_TRUE(receiver_->OpenWindow({key, destination_->id(), {{0, kArenaBytes}}}).ok());
  }
  void SetFaults(const PairFaults& faults) {
    sending_gpu_.pairs().SetFaults(faults);
    receiving_gpu_.pairs().SetFaults(faults);
  }
  OpId Write(uint64_t at, uint64_t key = kKey) {
    const WriteRun run{at, at, kWriteBytes};
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = key;
    op.tag = at;
    const auto id = channel_->PostWrite(op);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : OpId();
  }
  void Drive() {
    std::array<WriteEvent, 16> events;
    if (channel_) {
      const size_t count = channel_->Poll(SteadyClock().Now(), events);
      for (const WriteEvent& event : std::span(events).first(count)) {
        if (event.kind == WriteEvent::Kind::kFenced) {
          ++fenced_;
        } else {
          ended_[event.op] = event;
        }
      }
    }
    std::array<Arrival, 16> arrivals;
    const size_t count = receiver_->Poll(SteadyClock().Now(), arrivals);
    for (Arrival& arrival : std::span(arrivals).first(count)) arrived_.push_back(arrival);
    std::array<Arrival, 1> none;
    (void)sender_->Poll(SteadyClock().Now(), none);
  }
  // Polls both sides until `done`, for at most ten seconds.
  void DriveUntil(const std::function<bool()>& done) {
    const Time limit = SteadyClock().Now() + std::chrono::seconds(10);
    while (!done()) {
      ASSERT_LT(SteadyClock().Now(), limit) << "nothing moves any more";
      Drive();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void DriveFor(Duration time) {
    const Time until = SteadyClock().Now() + time;
    DriveUntil([&] { return SteadyClock().Now() >= until; });
  }
  size_t CountArrivals(Arrival::Kind kind) const {
    return static_cast<size_t>(
        std::ranges::count_if(arrived_, [&](const Arrival& a) { return a.kind == kind; }));
  }
  std::vector<std::byte> Original(uint64_t at) const {
    const auto begin = original_.begin() + static_cast<ptrdiff_t>(at);
    return {begin, begin + static_cast<ptrdiff_t>(kWriteBytes)};
  }

  static constexpr Duration kFenceTimeout = milliseconds(2000);

  FakeGpu sending_gpu_;
  FakeGpu receiving_gpu_;
  TestMemory from_{sending_gpu_, kArenaBytes};
  TestMemory to_{receiving_gpu_, kArenaBytes};
  const std::vector<std::byte> original_ = Pattern(kArenaBytes, 3);
  std::string log_;
  std::unique_ptr<NcclTransport> sender_;
  std::unique_ptr<NcclTransport> receiver_;
  std::unique_ptr<Region> source_;
  std::unique_ptr<Region> destination_;
  std::string descriptor_;
  std::unique_ptr<Channel> channel_;
  std::map<OpId, WriteEvent> ended_;
  std::vector<Arrival> arrived_;
  int fenced_ = 0;
};

TEST_F(NcclTransportTest, WithoutNcclOrOnTheSameGpuItIsRefused) {
  FakeGpu bare;
  bare.RemovePairs();
  EXPECT_EQ(NcclTransport::Create({}, &bare, {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(NcclTransport::Create({}, nullptr, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(sender_->Reaches(descriptor_).ok());
  receiving_gpu_.pairs().NameDevice("host/0000:3b:00.0");
  sending_gpu_.pairs().NameDevice("host/0000:3b:00.0");
  auto other = Make(Options(), receiving_gpu_);
  EXPECT_THAT(std::string(Message(sender_->Reaches(*other->Listen()))), HasSubstr("same GPU"));
}

TEST_F(NcclTransportTest, AHangEndsWithTheWatchdogAndTheNextChannelWorks) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  PairFaults hang;
  hang.hangs_from = 0;
  SetFaults(hang);
  Write(kWriteBytes);
  // Another session of the same pair loses its writes, too.
  Open(kKey + 1);
  const OpId other = Write(2 * kWriteBytes, kKey + 1);
  DriveUntil([&] { return ended_.size() == 3; });
  EXPECT_EQ(ended_.at(other).kind, WriteEvent::Kind::kFailed);
  EXPECT_EQ(ended_.at(other).status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(channel_->status())), HasSubstr("no progress for 0.2 s"));
  // It is not lost: the pair connects again, and the write is repeated.
  SetFaults({});
  Connect();
  ended_.clear();
  const OpId again = Write(2 * kWriteBytes, kKey + 1);
  DriveUntil([&] { return ended_.size() == 1; });
  EXPECT_EQ(ended_.at(again).kind, WriteEvent::Kind::kDone);
  EXPECT_EQ(to_.Get(2 * kWriteBytes, kWriteBytes), Original(2 * kWriteBytes));
}

TEST_F(NcclTransportTest, AReceiverWhoseExchangesHangLetsGo) {
  PairFaults hang;
  hang.hangs_from = 0;
  receiving_gpu_.pairs().SetFaults(hang);
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  DriveUntil([&] { return receiving_gpu_.pairs().alive() == 0; });
  EXPECT_THAT(log_, HasSubstr("receives from"));
}

TEST_F(NcclTransportTest, ACommunicatorThatNeverConnectsEndsInTime) {
  PairFaults faults;
  faults.connects = false;
  SetFaults(faults);
  const OpId op = Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  EXPECT_EQ(ended_.at(op).kind, WriteEvent::Kind::kFailed);
  EXPECT_THAT(std::string(Message(channel_->status())),
              HasSubstr("has not connected within 0.4 s"));
  DriveUntil([&] { return sending_gpu_.pairs().alive() + receiving_gpu_.pairs().alive() == 0; });
}

TEST_F(NcclTransportTest, AnErrorEndsTheChannelWithItsReason) {
  PairFaults faults;
  faults.fails_from = 0;
  sending_gpu_.pairs().SetFaults(faults);
  const OpId op = Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  EXPECT_EQ(ended_.at(op).status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(channel_->status())), HasSubstr("unhandled system error"));
}

// The device writes to the staging memory until the abort has ended. No byte of that reaches the
// arena, and nothing waits for the abort.
TEST_F(NcclTransportTest, AFenceDoesNotWaitForALongAbort) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  PairFaults slow;
  slow.hangs_from = 0;
  slow.abort_time = milliseconds(300);
  SetFaults(slow);
  Write(kWriteBytes);
  DriveFor(milliseconds(20));
  const Time before = SteadyClock().Now();
  channel_->Fence();
  DriveUntil([&] { return fenced_ == 1; });
  EXPECT_LT(SteadyClock().Now() - before, milliseconds(150));
  EXPECT_EQ(sender_->aborting(), 1u);
  slow.hangs_from = 1 << 30;
  SetFaults(slow);
  Connect();
  ended_.clear();
  Write(2 * kWriteBytes);
  DriveUntil([&] { return ended_.size() == 1; });
  EXPECT_EQ(ended_.begin()->second.kind, WriteEvent::Kind::kDone);
  DriveUntil([&] { return sender_->aborting() + receiver_->aborting() == 0; });
  EXPECT_EQ(to_.Get(0, kWriteBytes), Original(0));
  EXPECT_EQ(to_.Get(kWriteBytes, kWriteBytes), std::vector<std::byte>(kWriteBytes));
  EXPECT_EQ(to_.Get(2 * kWriteBytes, kWriteBytes), Original(2 * kWriteBytes));
}

// The process must not end while an abort uses the library. So the device's exchange waits for it,
// and the transport does not.
TEST_F(NcclTransportTest, AnAbortThatOutlivesItsTransportEndsBeforeItsExchange) {
  auto gpu = std::make_unique<FakeGpu>();
  PairFaults slow;
  slow.connects = false;
  slow.abort_time = milliseconds(300);
  gpu->pairs().SetFaults(slow);
  AbortedPairs& aborted = gpu->pairs().aborted();
  auto pair = *gpu->pairs().Make({*gpu->pairs().MakeId(), false, 4096});
  pair->Abort();
  aborted.Add(std::move(pair));
  {
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    const auto transport = Make(options, *gpu);
    EXPECT_EQ(transport->aborting(), 1u);
  }
  EXPECT_EQ(gpu->pairs().alive(), 1) << "the transport waited for the abort";
  gpu.reset();  // FakePairs checks that no communicator is left
}

// FakeGpu stops the process when memory is freed while an exchange runs, because cudaFree would
// wait for the exchange, and so for the peer.
TEST_F(NcclTransportTest, APairThatEndsFreesNoMemoryWhileAnotherOneMoves) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  PairFaults hang;
  hang.abort_time = milliseconds(20);
  SetFaults(hang);
  channel_->Fence();
  DriveUntil([&] { return fenced_ == 1; });
  Connect();
  hang.hangs_from = 0;
  SetFaults(hang);
  Write(kWriteBytes);
  DriveUntil([&] {
    return *receiving_gpu_.pairs().running() > 0 &&
           receiver_->aborting() + sender_->aborting() == 0;
  });
  EXPECT_EQ(receiving_gpu_.pairs().alive(), 1) << "the first pair has not ended";
}

TEST_F(NcclTransportTest, AnAbortDuringTheGatherSendsNothing) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  sending_gpu_.Hold();
  const OpId op = Write(kWriteBytes);
  DriveFor(milliseconds(20));
  channel_->RequestAbort(op);
  DriveFor(milliseconds(20));
  EXPECT_FALSE(ended_.contains(op)) << "its source is still being read";
  sending_gpu_.Release();
  DriveUntil([&] { return ended_.contains(op); });
  EXPECT_EQ(ended_.at(op).kind, WriteEvent::Kind::kAborted);
  const OpId next = Write(2 * kWriteBytes);
  DriveUntil([&] { return ended_.contains(next); });
  EXPECT_EQ(ended_.at(next).kind, WriteEvent::Kind::kDone);
  EXPECT_EQ(CountArrivals(Arrival::Kind::kArrived), 2u);
  EXPECT_EQ(to_.Get(kWriteBytes, kWriteBytes), std::vector<std::byte>(kWriteBytes));
}

TEST_F(NcclTransportTest, AFenceWaitsForTheGather) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  sending_gpu_.Hold();
  const OpId op = Write(kWriteBytes);
  DriveFor(milliseconds(20));
  channel_->Fence();
  DriveFor(milliseconds(20));
  EXPECT_FALSE(ended_.contains(op)) << "its source is still being read";
  EXPECT_EQ(fenced_, 0);
  sending_gpu_.Release();
  DriveUntil([&] { return fenced_ == 1; });
  EXPECT_EQ(ended_.at(op).kind, WriteEvent::Kind::kAborted);
}

TEST_F(NcclTransportTest, AWindowClosesWhileItsSenderHangs) {
  PairFaults hang;
  hang.hangs_from = 0;
  sending_gpu_.pairs().SetFaults(hang);
  Write(0);
  DriveFor(milliseconds(50));
  const Time before = SteadyClock().Now();
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return CountArrivals(Arrival::Kind::kClosed) == 1; });
  EXPECT_LT(SteadyClock().Now() - before, milliseconds(100));
  EXPECT_EQ(to_.Get(0, kWriteBytes), std::vector<std::byte>(kWriteBytes));
}

// Closing a window aborts nothing: the other sessions of the pair go on.
TEST_F(NcclTransportTest, TheCloseOfOneWindowCostsTheOthersNothing) {
  Open(kKey + 1);
  for (uint64_t i = 0; i < 16; ++i) Write(i * kWriteBytes, i % 2 == 0 ? kKey : kKey + 1);
  DriveFor(milliseconds(5));
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return ended_.size() == 16; });
  for (uint64_t i = 1; i < 16; i += 2) {
    EXPECT_EQ(to_.Get(i * kWriteBytes, kWriteBytes), Original(i * kWriteBytes)) << i;
  }
  EXPECT_TRUE(channel_->status().ok());
  EXPECT_EQ(sending_gpu_.pairs().made(), 1);
}

// The receiver's own copy into the blocks cannot be stopped: the close waits for it.
TEST_F(NcclTransportTest, ACloseWaitsForTheReceiversOwnCopies) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  receiving_gpu_.Hold();
  Write(kWriteBytes);
  DriveFor(milliseconds(50));
  receiver_->CloseWindow(kKey);
  DriveFor(milliseconds(50));
  EXPECT_EQ(CountArrivals(Arrival::Kind::kClosed), 0u);
  receiving_gpu_.Release();
  DriveUntil([&] { return CountArrivals(Arrival::Kind::kClosed) == 1; });
  to_.Fill(std::byte{0x55});
  DriveUntil([&] { return ended_.size() == 2; });
  DriveFor(milliseconds(20));
  EXPECT_EQ(to_.GetAll(), std::vector<std::byte>(kArenaBytes, std::byte{0x55}));
}

TEST_F(NcclTransportTest, ACloseThatOwnCopiesHoldUpIsReported) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  receiving_gpu_.Hold();
  Write(kWriteBytes);
  DriveFor(milliseconds(50));
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return CountArrivals(Arrival::Kind::kUnfenced) == 1; });
  EXPECT_EQ(CountArrivals(Arrival::Kind::kClosed), 0u);
  receiving_gpu_.Release();
  DriveUntil([&] { return CountArrivals(Arrival::Kind::kClosed) == 1; });
}

// A sender that follows no protocol.
class HostileNcclSenderTest : public NcclTransportTest {
 protected:
  void SetUp() override {
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
