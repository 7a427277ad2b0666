// The transport "nccl" with communicators that hang, fail, never connect, and whose abort takes
// long.

#include "kvtransfer/nccl/nccl_transport.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kvtransfer/nccl/staged_pair.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/nccl_transport_fixture.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

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

// The process must not end while an abort uses the library. Only the end of the transport waits.
TEST_F(NcclTransportTest, ATransportWaitsForItsAborts) {
  PairFaults slow;
  slow.hangs_from = 0;
  slow.abort_time = milliseconds(300);
  SetFaults(slow);
  Write(0);
  DriveFor(milliseconds(20));
  const Time before = SteadyClock().Now();
  channel_.reset();
  EXPECT_EQ(sender_->aborting(), 1u);
  EXPECT_EQ(sending_gpu_.pairs().alive(), 1);
  EXPECT_LT(SteadyClock().Now() - before, milliseconds(150)) << "the channel waited for the abort";
  source_.reset();
  sender_.reset();
  EXPECT_EQ(sending_gpu_.pairs().alive(), 0);
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

// The receiver copies out of its buffers, so none is free. Meanwhile this end fills its own.
TEST_F(NcclTransportTest, TheNextWritesAreGatheredWhileTheReceiverHasNoBuffer) {
  receiving_gpu_.Hold();
  constexpr auto kWrites = static_cast<int>(2 * kNcclBuffers);
  for (int i = 0; i < kWrites; ++i) Write(i * kWriteBytes);
  DriveUntil([&] { return sending_gpu_.ended() == kWrites; });
  DriveFor(milliseconds(20));
  EXPECT_TRUE(channel_->status().ok()) << "more writes than buffers were announced";
  EXPECT_EQ(ended_.size(), 0u);
  from_.Fill(std::byte{0x55});  // nobody reads it any more
  receiving_gpu_.Release();
  DriveUntil([&] { return ended_.size() == kWrites; });
  for (int i = 0; i < kWrites; ++i) {
    EXPECT_EQ(to_.Get(i * kWriteBytes, kWriteBytes), Original(i * kWriteBytes)) << i;
  }
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

TEST_F(NcclTransportTest, APayloadThatArrivesAfterTheCloseIsNotCopied) {
  Write(0);
  DriveUntil([&] { return ended_.size() == 1; });
  receiving_gpu_.pairs().SetFaults({.waits = true});
  const OpId op = Write(kWriteBytes);
  DriveUntil([&] { return *receiving_gpu_.pairs().running() == 1; });
  receiver_->CloseWindow(kKey);
  DriveUntil([&] { return CountArrivals(Arrival::Kind::kClosed) == 1; });
  to_.Fill(std::byte{0x55});  // the blocks belong to another session
  receiving_gpu_.pairs().SetFaults({});
  DriveUntil([&] { return ended_.contains(op); });
  EXPECT_EQ(ended_.at(op).kind, WriteEvent::Kind::kFailed);
  DriveFor(milliseconds(20));
  EXPECT_EQ(to_.GetAll(), std::vector<std::byte>(kArenaBytes, std::byte{0x55}));
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

class ShortFenceTest : public NcclTransportTest {
 protected:
  ShortFenceTest() { fence_timeout_ = milliseconds(200); }
};

TEST_F(ShortFenceTest, ACloseThatOwnCopiesHoldUpIsReported) {
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

}  // namespace
}  // namespace baton
