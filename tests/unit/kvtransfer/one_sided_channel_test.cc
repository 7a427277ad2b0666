#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "common/base/local_socket.h"
#include "kernels/granule_checksum.h"
#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "tests/conformance/test_memory.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

// A receiver that sends arbitrary frames to a channel, and records the channel's reactions.
class HostileReceiverTest : public testing::Test {
 protected:
  void SetUp() override {
    transport_ = *CudaIpcTransport::Create(Options(), &gpu_, {});
    region_ = *transport_->Register(source_.buffer());
    // Another transport provides a valid descriptor; the listening socket is the test's own.
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
  void Say(const SidebandFrame& frame) {
    EXPECT_TRUE(peer_->Send(frame).ok());
    Drive();
  }
  void Welcome() {
    SidebandFrame welcome = FrameOf(SidebandType::kWelcome);
    welcome.text = *gpu_.Export(target_.buffer());
    Say(welcome);
  }
  void GiveWindow(std::vector<ByteRange> ranges) {
    SidebandFrame window = FrameOf(SidebandType::kWindow, kKey);
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
  OpId PostHeld(WriteRun run) {
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = kKey;
    op.granule = run.bytes;
    op.held = true;
    return *channel_->PostWrite(op);
  }
  bool Heard(SidebandType type) const { return heard_.Last(type) != nullptr; }

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
  SidebandFrame ack = FrameOf(SidebandType::kAck);
  ack.header.op = op.value();  // it was not even started
  Say(ack);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  EXPECT_EQ(channel_->status().code(), StatusCode::kUnavailable);
}

TEST_F(HostileReceiverTest, AWindowThatWasAskedForIsLookedForALittleWhile) {
  Welcome();
  Post({0, 0, 100});
  Drive();
  EXPECT_TRUE(Heard(SidebandType::kAsk));
  EXPECT_TRUE(channel_->wants_poll());
  now_ += std::chrono::milliseconds(5);
  Drive();
  EXPECT_FALSE(channel_->wants_poll());
}

TEST_F(HostileReceiverTest, AWindowBeyondTheMemoryIsNotWritten) {
  Welcome();
  Post({0, 4000, 200});
  Drive();
  GiveWindow({{0, ~uint64_t{0}}});
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  EXPECT_FALSE(Heard(SidebandType::kLanded));
}

TEST_F(HostileReceiverTest, AWindowOfMoreRangesThanSaidKillsTheChannel) {
  Welcome();
  Post({0, 0, 100});
  Drive();
  SidebandFrame window = FrameOf(SidebandType::kWindow, kKey);
  window.header.bytes = 1;
  window.ranges = {{0, 10}, {20, 10}};
  Say(window);
  EXPECT_FALSE(channel_->status().ok());
}

TEST_F(HostileReceiverTest, AWindowThatCameUnaskedIsUsedAtOnce) {
  Welcome();
  GiveWindow({{0, 4096}});
  Post({0, 0, 100});
  DriveUntil([&] { return Heard(SidebandType::kLanded); });
  EXPECT_FALSE(Heard(SidebandType::kAsk));
}

TEST_F(HostileReceiverTest, AWindowThatCameUnaskedIsGivenBackUnused) {
  Welcome();
  GiveWindow({{0, 4096}});
  EXPECT_FALSE(Heard(SidebandType::kDrained));
  Say(FrameOf(SidebandType::kClose, kKey));
  EXPECT_TRUE(Heard(SidebandType::kDrained));
  // A later write has to ask for it.
  Post({0, 0, 100});
  Drive();
  EXPECT_TRUE(Heard(SidebandType::kAsk));
  EXPECT_FALSE(Heard(SidebandType::kLanded));
}

TEST_F(HostileReceiverTest, AWindowGivenTwiceKillsTheChannel) {
  Welcome();
  GiveWindow({});
  EXPECT_TRUE(channel_->status().ok());
  GiveWindow({{0, 4096}});
  EXPECT_FALSE(channel_->status().ok());
}

TEST_F(HostileReceiverTest, ARefusalOfAWindowThatNobodyAskedForKillsTheChannel) {
  Welcome();
  SidebandFrame refused = FrameOf(SidebandType::kWindow, kKey);
  refused.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
  Say(refused);
  EXPECT_FALSE(channel_->status().ok());
}

TEST_F(HostileReceiverTest, WindowsWithoutEndKillTheChannel) {
  Welcome();
  SidebandFrame window = FrameOf(SidebandType::kWindow);
  window.header.bytes = kMaxSidebandRecords;
  window.ranges.resize(kMaxSidebandRecords);
  const uint64_t most = 2 * kMaxWindowRanges / (kMaxSidebandRecords + 1);
  for (; window.header.key < most; ++window.header.key) Say(window);
  EXPECT_TRUE(channel_->status().ok());
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

// Between ranks of unequal shapes the runs of a block lie together on one side.
TEST_F(HostileReceiverTest, RunsThatLieTogetherAreReportedAsOneRange) {
  Welcome();
  GiveWindow({{0, 4096}});
  const std::array<WriteRun, 3> runs = {{{0, 1000, 100}, {200, 1100, 100}, {400, 2000, 50}}};
  WriteOp op;
  op.runs = runs;
  op.window_key = kKey;
  ASSERT_TRUE(channel_->PostWrite(op).ok());
  DriveUntil([&] { return Heard(SidebandType::kLanded); });
  EXPECT_EQ(heard_.Last(SidebandType::kLanded)->ranges,
            (std::vector<ByteRange>{{1000, 200}, {2000, 50}}));
}

TEST_F(HostileReceiverTest, AHeldWriteIsSummedButMovesOnlyWhenStarted) {
  source_.Fill(std::byte{7});
  Welcome();
  const OpId op = PostHeld({0, 0, 1024});
  Drive();
  GiveWindow({{0, 4096}});
  DriveUntil([&] { return !events_.empty(); });
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kChecksums);
  EXPECT_EQ(events_[0].checksums, std::vector{GranuleChecksum(source_.Get(0, 1024))});
  Drive();
  EXPECT_FALSE(Heard(SidebandType::kLanded));
  EXPECT_EQ(target_.Get(0, 1)[0], std::byte{0});
  channel_->Start(op);
  DriveUntil([&] { return Heard(SidebandType::kLanded); });
  EXPECT_EQ(heard_.Last(SidebandType::kLanded)->header.granule, 1024u);
  EXPECT_EQ(target_.Get(1023, 1)[0], std::byte{7});
  EXPECT_EQ(events_.size(), 1u) << "the checksums of its source came twice";
  SidebandFrame ack = FrameOf(SidebandType::kAck);
  ack.header.op = op.value();
  Say(ack);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[1].kind, WriteEvent::Kind::kDone);
}

TEST_F(HostileReceiverTest, AHeldWriteThatIsTakenBackNeverMoves) {
  Welcome();
  gpu_.Hold();  // its checksums do not end before Release
  const OpId op = PostHeld({0, 0, 1024});
  Drive();
  GiveWindow({{0, 4096}});
  channel_->RequestAbort(op);
  channel_->Start(op);
  Drive();
  EXPECT_TRUE(events_.empty()) << "the source is still being read";
  gpu_.Release();
  DriveUntil([&] { return !events_.empty(); });
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kAborted);
  Drive();
  EXPECT_EQ(events_.size(), 1u);
  EXPECT_FALSE(Heard(SidebandType::kLanded));
  EXPECT_EQ(target_.Get(0, 1)[0], std::byte{0});
}

// The three duties of a sender (OneSidedChannel), with a copy that does not end before Release.
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
  Say(FrameOf(SidebandType::kClose, kKey));
  const OpId late = Post({0, 200, 100});
  Drive();
  EXPECT_FALSE(Heard(SidebandType::kDrained));
  EXPECT_TRUE(events_.empty()) << "the source is still being read";
  gpu_.Release();
  DriveUntil([&] { return Heard(SidebandType::kDrained); });
  EXPECT_FALSE(Heard(SidebandType::kLanded));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].op, op_);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kFailed);
  // The later write has to ask for the window again.
  SidebandFrame refused = FrameOf(SidebandType::kWindow, kKey);
  refused.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
  Say(refused);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[1].op, late);
  EXPECT_EQ(target_.Get(200, 1)[0], std::byte{0});
}

TEST_F(SenderDutyTest, EndsAreLookedForWhileTheyAreNear) {
  EXPECT_TRUE(channel_->wants_poll());
  now_ += std::chrono::milliseconds(5);
  Drive();
  EXPECT_FALSE(channel_->wants_poll()) << "it would busy-poll for ever if the receiver is stopped";
  EXPECT_FALSE(IsWokenIn(0, *transport_));
  gpu_.Release();
  EXPECT_TRUE(IsWokenIn(5000, *transport_)) << "the end of the copy did not wake the thread";
  DriveUntil([&] { return Heard(SidebandType::kLanded); });
  EXPECT_TRUE(channel_->wants_poll());
  SidebandFrame ack = FrameOf(SidebandType::kAck);
  ack.header.op = op_.value();
  Say(ack);
  EXPECT_FALSE(channel_->wants_poll());
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
  EXPECT_FALSE(Heard(SidebandType::kDrained));
  gpu_.Release();
  DriveUntil([&] { return Heard(SidebandType::kDrained); });
  ASSERT_GE(heard_.frames.size(), 2u);
  EXPECT_EQ(heard_.frames[heard_.frames.size() - 2].header.type, SidebandType::kLanded);
  // A later write asks for the window again.
  heard_.frames.clear();
  Post({0, 0, 100});
  Drive();
  EXPECT_TRUE(Heard(SidebandType::kAsk));
}

// The receiver closes the window before it knows that the window was given back.
TEST_F(SenderDutyTest, ACloseThatCrossesARequestLeavesTheAnswerToIt) {
  channel_->Release(kKey);
  gpu_.Release();
  DriveUntil([&] { return Heard(SidebandType::kDrained); });
  const OpId late = Post({0, 0, 100});
  Drive();
  Say(FrameOf(SidebandType::kClose, kKey));
  SidebandFrame refused = FrameOf(SidebandType::kWindow, kKey);
  refused.header.code = static_cast<uint32_t>(StatusCode::kNotFound);
  Say(refused);
  EXPECT_TRUE(channel_->status().ok()) << channel_->status();
  ASSERT_FALSE(events_.empty());
  EXPECT_EQ(events_.back().op, late);
  EXPECT_EQ(events_.back().kind, WriteEvent::Kind::kFailed);
}

TEST_F(SenderDutyTest, AnAbortedWriteEndsAfterItsCopyAndIsNotTold) {
  channel_->RequestAbort(op_);
  Drive();
  EXPECT_TRUE(events_.empty());
  gpu_.Release();
  DriveUntil([&] { return events_.size() == 1; });
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kAborted);
  EXPECT_FALSE(Heard(SidebandType::kLanded));
}

TEST_F(SenderDutyTest, AFencedChannelSaysGoodbyeAfterTheLastCopy) {
  channel_->Fence();
  Drive();
  EXPECT_TRUE(events_.empty());
  EXPECT_FALSE(Heard(SidebandType::kBye));
  gpu_.Release();
  DriveUntil([&] { return events_.size() == 2; });
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kAborted);
  EXPECT_EQ(events_[1].kind, WriteEvent::Kind::kFenced);
  EXPECT_TRUE(Heard(SidebandType::kBye));
  EXPECT_FALSE(heard_.is_open);
}

TEST_F(SenderDutyTest, ALostDeviceConfirmsNothing) {
  gpu_.Lose();
  Say(FrameOf(SidebandType::kClose, kKey));
  gpu_.Release();
  DriveUntil([&] { return !heard_.is_open; });
  EXPECT_FALSE(Heard(SidebandType::kDrained));
  EXPECT_FALSE(Heard(SidebandType::kBye));
  EXPECT_FALSE(channel_->status().ok());
}

}  // namespace
}  // namespace baton
