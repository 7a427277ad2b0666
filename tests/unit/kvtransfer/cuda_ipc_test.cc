#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/wire/local_socket.h"
#include "tests/conformance/test_memory.h"
#include "tests/fakes/fake_gpu.h"

namespace baton {
namespace {

constexpr uint64_t kKey = 77;
constexpr Duration kFence = std::chrono::seconds(2);

TransportOptions Options() {
  TransportOptions options;
  options.fence_timeout = kFence;
  return options;
}

IpcFrame FrameOf(IpcType type, uint64_t key = 0) {
  IpcFrame frame;
  frame.header.type = type;
  frame.header.key = key;
  return frame;
}

// Frames that came on a socket, and whether it is still open.
struct Heard {
  std::vector<IpcFrame> frames;
  bool is_open = true;

  const IpcFrame* Last(IpcType type) const {
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      if (frame->header.type == type) return &*frame;
    }
    return nullptr;
  }
};

void Hear(IpcSocket& socket, Heard& heard) {
  while (heard.is_open) {
    auto frame = socket.Receive();
    heard.is_open = frame.ok();
    if (!frame.ok() || !frame->has_value()) return;
    heard.frames.push_back(**std::move(frame));
  }
}

// A sender that says to a receiving transport what it likes.
class HostileSenderTest : public testing::Test {
 protected:
  void SetUp() override {
    transport_ = *CudaIpcTransport::Create(Options(), &gpu_, [this](auto line) { log_ += line; });
    region_ = *transport_->Register(arena_.buffer());
    const std::string descriptor = *transport_->Listen();
    name_ = descriptor.substr(descriptor.find("baton-ipc-"), 26);
    ASSERT_TRUE(transport_->OpenWindow({kKey, region_->id(), {{1024, 1024}}}).ok());
    peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  }
  void TearDown() override {
    peer_.reset();
    region_.reset();
  }

  // Serves until nothing more happens.
  void Serve() {
    for (int i = 0; i < 20; ++i) {
      std::array<Arrival, 8> arrivals;
      const size_t count = transport_->Poll(now_, arrivals);
      for (Arrival& arrival : std::span(arrivals).first(count)) {
        arrived_.push_back(std::move(arrival));
      }
      Hear(*peer_, heard_);
    }
  }
  void ServeUntil(const std::function<bool()>& done) {
    const Time until = SteadyClock().Now() + std::chrono::seconds(10);
    while (!done() && SteadyClock().Now() < until) Serve();
    EXPECT_TRUE(done());
  }
  void Say(const IpcFrame& frame) { EXPECT_TRUE(peer_->Send(frame).ok()); }
  void Greet() {
    Say(FrameOf(IpcType::kHello));
    Serve();
    ASSERT_NE(heard_.Last(IpcType::kWelcome), nullptr);
  }
  void Ask(uint64_t key) {
    Say(FrameOf(IpcType::kAsk, key));
    Serve();
    ASSERT_NE(heard_.Last(IpcType::kWindow), nullptr);
  }
  static IpcFrame Landed(WriteRun run, uint64_t key = kKey) {
    IpcFrame frame = FrameOf(IpcType::kLanded, key);
    frame.header.op = 1;
    frame.header.bytes = run.bytes;
    frame.runs = {run};
    return frame;
  }
  size_t Count(Arrival::Kind kind) const {
    size_t count = 0;
    for (const Arrival& arrival : arrived_) count += arrival.kind == kind ? 1 : 0;
    return count;
  }

  FakeGpu gpu_;
  TestMemory arena_{gpu_, 4096};
  std::string log_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  std::string name_;
  std::optional<IpcSocket> peer_;
  Time now_{std::chrono::hours(1)};
  Heard heard_;
  std::vector<Arrival> arrived_;
};

TEST_F(HostileSenderTest, FramesOutOfPlaceEndTheConnection) {
  Say(FrameOf(IpcType::kAsk, kKey));
  Serve();
  EXPECT_FALSE(heard_.is_open);
  EXPECT_TRUE(heard_.frames.empty());
  for (const IpcType type : {IpcType::kHello, IpcType::kWelcome, IpcType::kAck}) {
    peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
    heard_ = {};
    Greet();
    Say(FrameOf(type));
    Serve();
    EXPECT_FALSE(heard_.is_open) << static_cast<int>(type);
  }
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, AnUnknownRegionOrWindowIsRefused) {
  IpcFrame hello = FrameOf(IpcType::kHello);
  hello.header.op = 9;
  Say(hello);
  Serve();
  EXPECT_FALSE(heard_.is_open);
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  heard_ = {};
  Greet();
  Ask(kKey + 1);
  EXPECT_EQ(heard_.Last(IpcType::kWindow)->header.code,
            static_cast<uint32_t>(StatusCode::kNotFound));
  Ask(kKey);
  EXPECT_EQ(heard_.Last(IpcType::kWindow)->header.code, 0u);
  EXPECT_EQ(heard_.Last(IpcType::kWindow)->ranges, (std::vector<ByteRange>{{1024, 1024}}));
  Say(FrameOf(IpcType::kBye));
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, WhatItMayNotWriteIsNotCounted) {
  Greet();
  const auto refused = [&](StatusCode code) {
    Serve();
    const IpcFrame* ack = heard_.Last(IpcType::kAck);
    EXPECT_TRUE(ack != nullptr && ack->header.code == static_cast<uint32_t>(code));
    heard_.frames.clear();
  };
  Say(Landed({0, 1024, 100}));  // it never asked
  refused(StatusCode::kNotFound);
  Ask(kKey);
  Say(Landed({0, 1000, 100}));
  refused(StatusCode::kPermissionDenied);
  EXPECT_NE(log_.find("that it was not given"), std::string::npos) << log_;
  Say(Landed({0, ~uint64_t{0} - 50, 100}));
  refused(StatusCode::kPermissionDenied);
  EXPECT_TRUE(arrived_.empty());
  Say(Landed({0, 1024, 100}));
  refused(StatusCode::kOk);
  EXPECT_EQ(arrived_.size(), 1u);
  IpcFrame wrong = Landed({0, 1024, 100});
  wrong.header.bytes = 99;
  Say(wrong);
  Serve();
  EXPECT_FALSE(heard_.is_open);
  transport_->CloseWindow(kKey);
}

TEST_F(HostileSenderTest, AWindowIsClosedByItsHoldersWordAlone) {
  Greet();
  Ask(kKey);
  transport_->CloseWindow(kKey);
  Serve();
  EXPECT_NE(heard_.Last(IpcType::kClose), nullptr);
  EXPECT_TRUE(arrived_.empty());
  Say(Landed({0, 1024, 100}));
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kArrived), 0u);
  Say(FrameOf(IpcType::kDrained, kKey + 1));
  Serve();
  EXPECT_TRUE(arrived_.empty());
  Say(FrameOf(IpcType::kDrained, kKey));
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 1u);
}

TEST_F(HostileSenderTest, WithoutAWordTheWindowIsUnfenced) {
  Greet();
  Ask(kKey);
  transport_->CloseWindow(kKey);
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));  // the first connection is gone
  Serve();
  EXPECT_TRUE(arrived_.empty());
  now_ += kFence;
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kUnfenced), 1u);
  now_ += kFence;
  Serve();
  EXPECT_EQ(arrived_.size(), 1u);  // this process lives, so that no proof comes
  EXPECT_NE(log_.find("may still write"), std::string::npos) << log_;
}

TEST_F(HostileSenderTest, AGoodbyeGivesEveryWindowBack) {
  Greet();
  Ask(kKey);
  Say(FrameOf(IpcType::kBye));
  peer_.emplace(*ConnectLocal(name_, SOCK_SEQPACKET));
  Serve();
  transport_->CloseWindow(kKey);
  Serve();
  EXPECT_EQ(Count(Arrival::Kind::kClosed), 1u);
}

TEST_F(HostileSenderTest, AWindowOfManyRangesComesInParts) {
  TestMemory large(gpu_, size_t{10000} * 32);
  const auto region = *transport_->Register(large.buffer());
  std::vector<ByteRange> ranges;
  for (uint64_t i = 0; i < 10000; ++i) ranges.push_back({i * 32, 16});
  ASSERT_TRUE(transport_->OpenWindow({kKey + 1, region->id(), ranges}).ok());
  IpcFrame hello = FrameOf(IpcType::kHello);
  hello.header.op = region->id();
  Say(hello);
  Ask(kKey + 1);
  ServeUntil([&] { return heard_.frames.size() == 4; });
  std::vector<ByteRange> heard;
  for (const IpcFrame& frame : heard_.frames) {
    heard.insert(heard.end(), frame.ranges.begin(), frame.ranges.end());
  }
  EXPECT_EQ(heard, ranges);
  Say(FrameOf(IpcType::kBye));
  Serve();
  transport_->CloseWindow(kKey + 1);
  transport_->CloseWindow(kKey);
  Serve();
}

// A receiver that says to a channel what it likes, and what the channel does about it.
class HostileReceiverTest : public testing::Test {
 protected:
  void SetUp() override {
    transport_ = *CudaIpcTransport::Create(Options(), &gpu_, {});
    region_ = *transport_->Register(source_.buffer());
    // A listening transport only lends its descriptor: the other end is ours.
    const auto other = *CudaIpcTransport::Create(Options(), &gpu_, {});
    const auto other_region = *other->Register(target_.buffer());
    std::string descriptor = *other->Listen();
    const std::string name = fmt::format("baton-test-{:015x}", RandomId() >> 4);
    descriptor.replace(descriptor.find("baton-ipc-"), 26, name);
    const UniqueFd listener = *ListenLocal(name, SOCK_SEQPACKET);
    channel_ = *transport_->Connect(*region_, descriptor, 0);
    peer_.emplace(UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK)));
  }
  void TearDown() override {
    channel_.reset();
    region_.reset();
  }

  void Drive() {
    for (int i = 0; i < 20; ++i) {
      if (channel_) {
        std::array<WriteEvent, 8> events;
        const size_t count = channel_->Poll(now_, events);
        events_.insert(
            events_.end(), events.begin(), events.begin() + static_cast<ptrdiff_t>(count));
      }
      if (peer_) Hear(*peer_, heard_);
    }
  }
  void DriveUntil(const std::function<bool()>& done) {
    const Time until = SteadyClock().Now() + std::chrono::seconds(10);
    while (!done() && SteadyClock().Now() < until) Drive();
    EXPECT_TRUE(done());
  }
  void Say(const IpcFrame& frame) {
    EXPECT_TRUE(peer_->Send(frame).ok());
    Drive();
  }
  void Welcome() {
    IpcFrame welcome = FrameOf(IpcType::kWelcome);
    welcome.text = *gpu_.Export(target_.buffer());
    Say(welcome);
  }
  void GiveWindow(std::vector<ByteRange> ranges) {
    IpcFrame window = FrameOf(IpcType::kWindow, kKey);
    window.header.bytes = ranges.size();
    window.ranges = std::move(ranges);
    Say(window);
  }
  OpId Post(WriteRun run) {
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = kKey;
    return *channel_->PostWrite(op);
  }
  bool Heard(IpcType type) const { return heard_.Last(type) != nullptr; }

  FakeGpu gpu_;
  TestMemory source_{gpu_, 4096};
  TestMemory target_{gpu_, 4096};
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Channel> channel_;
  std::optional<IpcSocket> peer_;
  Time now_{std::chrono::hours(1)};
  baton::Heard heard_;
  std::vector<WriteEvent> events_;
};

TEST_F(HostileReceiverTest, NonsenseKillsTheChannel) {
  Welcome();
  const OpId op = Post({0, 0, 100});
  Drive();
  IpcFrame ack = FrameOf(IpcType::kAck);
  ack.header.op = op.value();  // it was not even started
  Say(ack);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  EXPECT_EQ(channel_->status().code(), StatusCode::kUnavailable);
}

TEST_F(HostileReceiverTest, AWindowBeyondTheMemoryIsNotWritten) {
  Welcome();
  Post({0, 4000, 200});
  Drive();
  GiveWindow({{0, ~uint64_t{0}}});
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  EXPECT_FALSE(Heard(IpcType::kLanded));
}

TEST_F(HostileReceiverTest, AWindowOfMoreRangesThanSaidKillsTheChannel) {
  Welcome();
  Post({0, 0, 100});
  Drive();
  IpcFrame window = FrameOf(IpcType::kWindow, kKey);
  window.header.bytes = 1;
  window.ranges = {{0, 10}, {20, 10}};
  Say(window);
  EXPECT_FALSE(channel_->status().ok());
}

TEST_F(HostileReceiverTest, SilenceEndsTheConnecting) {
  Post({0, 0, 100});
  Drive();
  now_ += std::chrono::seconds(4);
  Drive();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  EXPECT_NE(Message(channel_->status()).find("no answer"), std::string::npos);
}

// The three duties of a sender, with copies that take their time.
class SenderDutyTest : public HostileReceiverTest {
 protected:
  void SetUp() override {
    HostileReceiverTest::SetUp();
    Welcome();
    gpu_.Hold();
    op_ = Post({0, 0, 100});
    Drive();
    GiveWindow({{0, 4096}});
  }
  void TearDown() override {
    gpu_.Release();
    HostileReceiverTest::TearDown();
  }
  OpId op_;
};

TEST_F(SenderDutyTest, AClosedWindowIsConfirmedAfterTheLastCopy) {
  Say(FrameOf(IpcType::kClose, kKey));
  const OpId late = Post({0, 200, 100});
  Drive();
  EXPECT_FALSE(Heard(IpcType::kDrained));
  EXPECT_TRUE(events_.empty()) << "the source is still being read";
  gpu_.Release();
  DriveUntil([&] { return Heard(IpcType::kDrained); });
  EXPECT_FALSE(Heard(IpcType::kLanded));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].op, op_);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  // What came later has to ask again.
  IpcFrame refused = FrameOf(IpcType::kWindow, kKey);
  refused.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
  Say(refused);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[1].op, late);
  EXPECT_EQ(target_.Get(200, 1)[0], std::byte{0});
}

TEST_F(SenderDutyTest, TheRateIsThatOfTheTimeWithCopies) {
  EXPECT_EQ(channel_->bytes_per_second(), 0);
  now_ += std::chrono::milliseconds(1);
  gpu_.Release();
  DriveUntil([&] { return channel_->bytes_per_second() > 0; });
  EXPECT_NEAR(channel_->bytes_per_second(), 100 / 1e-3, 1);
  now_ += std::chrono::seconds(1);
  Drive();
  EXPECT_NEAR(channel_->bytes_per_second(), 100 / 1e-3, 1);
}

TEST_F(SenderDutyTest, AReleasedWindowIsGivenBackAfterTheLastCopy) {
  channel_->Release(kKey);
  Drive();
  EXPECT_FALSE(Heard(IpcType::kDrained));
  gpu_.Release();
  DriveUntil([&] { return Heard(IpcType::kDrained); });
  ASSERT_GE(heard_.frames.size(), 2u);
  EXPECT_EQ(heard_.frames[heard_.frames.size() - 2].header.type, IpcType::kLanded);
  // A write after all asks again.
  heard_.frames.clear();
  Post({0, 0, 100});
  Drive();
  EXPECT_TRUE(Heard(IpcType::kAsk));
}

TEST_F(SenderDutyTest, AnAbortedWriteEndsAfterItsCopyAndIsNotTold) {
  channel_->RequestAbort(op_);
  Drive();
  EXPECT_TRUE(events_.empty());
  gpu_.Release();
  DriveUntil([&] { return events_.size() == 1; });
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kAborted);
  EXPECT_FALSE(Heard(IpcType::kLanded));
}

TEST_F(SenderDutyTest, AFencedChannelSaysGoodbyeAfterTheLastCopy) {
  channel_->Fence();
  Drive();
  EXPECT_TRUE(events_.empty());
  EXPECT_FALSE(Heard(IpcType::kBye));
  gpu_.Release();
  DriveUntil([&] { return events_.size() == 2; });
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kAborted);
  EXPECT_EQ(events_[1].kind, WriteEvent::Kind::kFenced);
  EXPECT_TRUE(Heard(IpcType::kBye));
  EXPECT_FALSE(heard_.is_open);
}

TEST_F(SenderDutyTest, ALostDeviceConfirmsNothing) {
  gpu_.Lose();
  Say(FrameOf(IpcType::kClose, kKey));
  gpu_.Release();
  DriveUntil([&] { return !heard_.is_open; });
  EXPECT_FALSE(Heard(IpcType::kDrained));
  EXPECT_FALSE(Heard(IpcType::kBye));
  EXPECT_FALSE(channel_->status().ok());
}

}  // namespace
}  // namespace baton
