#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "common/base/local_socket.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/one_sided/channel.h"
#include "kvtransfer/one_sided/receiver.h"
#include "tests/conformance/host_buffer.h"
#include "tests/fakes/fake_gpu.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

// The protocol's use of its plugs: what a second one-sided transport may rely on.
namespace baton {
namespace {

constexpr uint32_t kMark = 0x03000007;
constexpr uint64_t kRegionBytes = uint64_t{64} << 20;  // nobody touches them

// The calls of a RecordingCopier. Outlives the copier.
struct CopierCalls {
  std::string access;
  bool marks_copies = false;
  std::vector<uint64_t> copies;
  std::function<void(uint64_t id)> on_copy;
  int fences = 0;
  std::deque<DmaDone> ends;  // what Poll returns
};

class RecordingCopier final : public Copier {
 public:
  explicit RecordingCopier(CopierCalls& calls) : calls_(calls) {}
  std::string Greeting() const override { return "my queue pair"; }
  Status Connect(std::string_view access) override {
    calls_.access = access;
    return OkStatus();
  }
  bool marks_copies() const override { return calls_.marks_copies; }
  uint64_t peer_bytes() const override { return kRegionBytes; }
  StatusOr<uint32_t> Copy(uint64_t id, std::span<const WriteRun>) override {
    calls_.copies.push_back(id);
    if (calls_.on_copy) calls_.on_copy(id);
    return kMark;
  }
  Status Checksum(uint64_t, std::span<const ByteRange>, uint64_t) override { return OkStatus(); }
  void Fence() override { ++calls_.fences; }
  size_t Poll(std::span<DmaDone> done) override {
    if (calls_.ends.empty()) return 0;
    done[0] = std::move(calls_.ends.front());
    calls_.ends.pop_front();
    return 1;
  }
  int wait_fd() const override { return wait_.get(); }
  void WatchEnds() override {}

 private:
  CopierCalls& calls_;
  const UniqueFd wait_ = *MakeEventFd();
};

class CopierTest : public testing::Test {
 protected:
  void SetUp() override {
    auto [ours, theirs] = ConnectedSockets();
    peer_ = std::move(theirs);
    OneSidedChannel::Options options;
    options.socket = std::move(ours);
    options.copier = std::make_unique<RecordingCopier>(calls_);
    options.source_bytes = kRegionBytes;
    options.peer_region = 3;
    options.epoll_fd = epoll_.get();
    options.connect_timeout = std::chrono::seconds(3);
    channel_.emplace(std::move(options));
    SidebandFrame welcome = FrameOf(SidebandType::kWelcome);
    welcome.text = "my memory";
    Say(welcome);
  }
  void Post(uint64_t bytes) {
    const WriteRun run{0, 0, bytes};
    WriteOp op;
    op.runs = {&run, 1};
    op.window_key = kKey;
    ASSERT_TRUE(channel_->PostWrite(op).ok());
  }
  void GiveWindow() {
    SidebandFrame window = FrameOf(SidebandType::kWindow, kKey);
    window.ranges = {{0, kRegionBytes}};
    window.header.bytes = 1;
    Say(window);
  }
  // Starts one copy.
  void StartCopy() {
    Post(100);
    Poll();
    GiveWindow();
    ASSERT_EQ(calls_.copies.size(), 1u);
  }
  void Say(const SidebandFrame& frame) {
    EXPECT_TRUE(peer_->Send(frame).ok());
    Poll();
  }
  void Poll() {
    std::array<WriteEvent, 8> events;
    for (int i = 0; i < 3; ++i) {
      const size_t count = channel_->Poll(Time{std::chrono::hours(1)}, events);
      for (WriteEvent& event : std::span(events).first(count)) events_.push_back(std::move(event));
    }
    Hear(*peer_, heard_);
  }

  const UniqueFd epoll_ = *MakeEpoll();
  CopierCalls calls_;
  std::unique_ptr<FrameSocket> peer_;
  std::optional<OneSidedChannel> channel_;
  Heard heard_;
  std::vector<WriteEvent> events_;
};

TEST_F(CopierTest, GreetingAndAccessAreExchanged) {
  const SidebandFrame* hello = heard_.Last(SidebandType::kHello);
  ASSERT_NE(hello, nullptr);
  EXPECT_EQ(hello->header.op, 3u);
  EXPECT_EQ(hello->text, "my queue pair");
  EXPECT_EQ(calls_.access, "my memory");
}

TEST_F(CopierTest, IsFencedOnceWhenTheChannelDies) {
  StartCopy();
  EXPECT_EQ(calls_.fences, 0);
  channel_->Fence();
  channel_->Fence();
  EXPECT_EQ(calls_.fences, 1);
  Poll();
  EXPECT_TRUE(events_.empty()) << "the copy is still under way";
  calls_.ends.push_back({calls_.copies[0], OkStatus(), {}});
  Poll();
  EXPECT_EQ(events_.size(), 3u);  // kAborted, kFenced, kFenced
  EXPECT_NE(heard_.Last(SidebandType::kBye), nullptr);
}

TEST_F(CopierTest, ACopyWithoutAKnownEndIsNotConfirmed) {
  StartCopy();
  channel_->Fence();
  calls_.ends.push_back(
      {calls_.copies[0], MakeStatus(StatusCode::kUnavailable, "flushed with an error"), {}});
  Poll();
  EXPECT_EQ(events_.size(), 2u);
  EXPECT_FALSE(heard_.is_open);
  EXPECT_EQ(heard_.Last(SidebandType::kBye), nullptr);
}

TEST_F(CopierTest, ACopyWithoutAMarkIsReportedWhenItHasEnded) {
  StartCopy();
  channel_->Release(kKey);
  Poll();
  EXPECT_EQ(heard_.Last(SidebandType::kLanded), nullptr);
  EXPECT_EQ(heard_.Last(SidebandType::kDrained), nullptr);
  calls_.ends.push_back({calls_.copies[0], OkStatus(), {}});
  Poll();
  EXPECT_NE(heard_.Last(SidebandType::kLanded), nullptr);
  EXPECT_NE(heard_.Last(SidebandType::kDrained), nullptr);
}

// Starting large writes takes the host long. Meanwhile the receiver can compute checksums.
TEST_F(CopierTest, WhatHasLandedIsReportedWhileFurtherLargeWritesAreStarted) {
  std::vector<std::ptrdiff_t> landed;  // reports that the receiver had when each copy started
  calls_.on_copy = [&](uint64_t id) {
    Hear(*peer_, heard_);
    landed.push_back(std::ranges::count_if(heard_.frames, [](const SidebandFrame& frame) {
      return frame.header.type == SidebandType::kLanded;
    }));
    calls_.ends.push_back({id, OkStatus(), {}});
  };
  for (int i = 0; i < 4; ++i) Post(uint64_t{12} << 20);
  GiveWindow();
  EXPECT_EQ(landed, (std::vector<std::ptrdiff_t>{0, 0, 1, 1}));
}

class MarkedCopierTest : public CopierTest {
 protected:
  void SetUp() override {
    calls_.marks_copies = true;
    CopierTest::SetUp();
    StartCopy();
  }
  void Acknowledge() {
    SidebandFrame ack = FrameOf(SidebandType::kAck);
    ack.header.op = 1;
    Say(ack);
  }
  void EndCopy() {
    calls_.ends.push_back({calls_.copies[0], OkStatus(), {}});
    Poll();
  }
};

// The receiver waits for the mark, so the report need not wait for the copy.
TEST_F(MarkedCopierTest, ACopyIsReportedWithItsMarkWhenItStarts) {
  const SidebandFrame* landed = heard_.Last(SidebandType::kLanded);
  ASSERT_NE(landed, nullptr);
  EXPECT_EQ(landed->header.code, kMark);
  channel_->Release(kKey);
  Poll();
  ASSERT_EQ(heard_.frames.back().header.type, SidebandType::kDrained);
  EndCopy();
  EXPECT_EQ(heard_.frames.back().header.type, SidebandType::kDrained) << "reported twice";
}

TEST_F(MarkedCopierTest, AnAcknowledgedWriteEndsWhenItsSourceIsNotReadAnyMore) {
  Acknowledge();
  EXPECT_TRUE(events_.empty()) << "the copy is still under way";
  EndCopy();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kDone);
}

// The receiver counted it before it closed the window.
TEST_F(MarkedCopierTest, ACloseDoesNotFailAWriteThatWasCounted) {
  Acknowledge();
  Say(FrameOf(SidebandType::kClose, kKey));
  EXPECT_NE(heard_.Last(SidebandType::kDrained), nullptr);
  EndCopy();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kDone);
}

TEST_F(MarkedCopierTest, AWriteThatIsTakenBackEndsAfterItsCopy) {
  channel_->RequestAbort(OpId(1));
  Acknowledge();
  EXPECT_TRUE(events_.empty()) << "the source is still being read";
  EndCopy();
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, WriteEvent::Kind::kAborted);
}

// The calls of a RecordingAccess. Outlives the access.
struct AccessCalls {
  std::string greeting;
  int revokes = 0;
  bool is_revoked = false;  // what Revoke returns
  bool has_landed = true;   // what HasLanded returns
  std::vector<uint32_t> marks;
  const UniqueFd wait = *MakeEventFd();
};

class RecordingAccess final : public RemoteAccess {
 public:
  explicit RecordingAccess(AccessCalls& calls) : calls_(calls) {}
  const std::string& peer() const override { return peer_; }
  StatusOr<std::string> Open(const Buffer&, std::string_view greeting) override {
    calls_.greeting = greeting;
    return std::string("my memory");
  }
  bool HasLanded(uint32_t mark) override {
    calls_.marks.push_back(mark);
    return calls_.has_landed;
  }
  bool Revoke() override {
    ++calls_.revokes;
    return calls_.is_revoked;
  }
  int wait_fd() const override { return calls_.wait.get(); }

 private:
  AccessCalls& calls_;
  const std::string peer_ = "queue pair 7";
};

class RemoteAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    auto [ours, theirs] = ConnectedSockets();
    peer_ = std::move(theirs);
    OneSidedReceiver::Options options;
    options.epoll_fd = epoll_.get();
    options.fence_timeout = kFence;
    options.log = [this](std::string_view line) { log_ += line; };
    receiver_.emplace(windows_, *gpu_.MakeQueue(), std::move(options));
    server_.emplace(*ListenLocal(fmt::format("baton-test-{:016x}", RandomId()), SOCK_SEQPACKET),
                    epoll_.get(),
                    FrameServer::Options{});
    region_ = windows_.Add(memory_);
    connection_ =
        receiver_->Add(std::move(ours), std::make_unique<RecordingAccess>(calls_), Time{});
    EXPECT_EQ(connection_->peer(), "queue pair 7");
    ASSERT_TRUE(windows_.Open({kKey, region_->id(), {{0, 4096}}}).ok());
    SidebandFrame hello = FrameOf(SidebandType::kHello);
    hello.header.op = region_->id();
    hello.text = "my queue pair";
    Say(hello);
    Say(FrameOf(SidebandType::kAsk, kKey));
    Hear(*peer_, heard_);
    ASSERT_NE(heard_.Last(SidebandType::kWindow), nullptr);
  }
  void TearDown() override { connection_.reset(); }

  void Say(const SidebandFrame& frame) {
    EXPECT_TRUE(peer_->Send(frame).ok());
    EXPECT_TRUE(connection_->Step(Time{}, 1 << 20).ok());
  }
  static SidebandFrame Landed() {
    SidebandFrame landed = FrameOf(SidebandType::kLanded, kKey);
    landed.header.code = kMark;
    landed.header.bytes = 100;
    landed.ranges = {{0, 100}};
    return landed;
  }
  // The kinds of the arrivals since the last call.
  std::vector<Arrival::Kind> Kinds() {
    receiver_->Poll(now_, *server_);
    std::array<Arrival, 8> arrivals;
    std::vector<Arrival::Kind> kinds;
    const size_t count = windows_.TakeArrivals(arrivals);
    for (const Arrival& arrival : std::span(arrivals).first(count)) kinds.push_back(arrival.kind);
    return kinds;
  }

  Time now_{std::chrono::hours(1)};
  const UniqueFd epoll_ = *MakeEpoll();
  HostBuffer memory_{4096};
  FakeGpu gpu_;
  AccessCalls calls_;
  std::string log_;
  WindowTable windows_;
  std::unique_ptr<Region> region_;
  std::optional<OneSidedReceiver> receiver_;
  std::optional<FrameServer> server_;
  std::unique_ptr<FrameSocket> peer_;
  std::unique_ptr<PeerConnection> connection_;
  Heard heard_;
};

// The request must not overtake the end of the window that the peer had before: the peer would
// write, and not hold the window.
TEST_F(RemoteAccessTest, AWindowThatWasGivenBackIsGivenAgainInOrder) {
  calls_.has_landed = false;
  Say(Landed());
  Say(FrameOf(SidebandType::kDrained, kKey));
  heard_.frames.clear();
  Say(FrameOf(SidebandType::kAsk, kKey));
  Hear(*peer_, heard_);
  EXPECT_TRUE(heard_.frames.empty());
  calls_.has_landed = true;
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kArrived});
  Hear(*peer_, heard_);
  ASSERT_NE(heard_.Last(SidebandType::kWindow), nullptr);
  receiver_->CloseWindow(kKey);
  EXPECT_TRUE(Kinds().empty()) << "the peer may write";
  Say(FrameOf(SidebandType::kDrained, kKey));
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
}

TEST_F(RemoteAccessTest, IsOpenedWithTheGreeting) {
  EXPECT_EQ(calls_.greeting, "my queue pair");
  ASSERT_NE(heard_.Last(SidebandType::kWelcome), nullptr);
  EXPECT_EQ(heard_.Last(SidebandType::kWelcome)->text, "my memory");
  receiver_->CloseWindow(kKey);
}

TEST_F(RemoteAccessTest, AWindowIsClosedAtOnceWhereTheAccessCanBeTakenBack) {
  calls_.is_revoked = true;
  receiver_->CloseWindow(kKey);
  EXPECT_TRUE(Kinds().empty());
  connection_.reset();
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
  EXPECT_EQ(calls_.revokes, 1);
  EXPECT_EQ(log_, "");
}

TEST_F(RemoteAccessTest, AWindowIsClosedWhenTheAccessIsTakenBackAtLast) {
  receiver_->CloseWindow(kKey);
  connection_.reset();
  EXPECT_TRUE(Kinds().empty());
  EXPECT_NE(log_.find("queue pair 7 may still write"), std::string::npos) << log_;
  calls_.is_revoked = true;
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
}

TEST_F(RemoteAccessTest, APeerThatDoesNotConfirmInTimeIsRevoked) {
  receiver_->CloseWindow(kKey);
  calls_.is_revoked = true;
  EXPECT_TRUE(Kinds().empty());
  now_ += kFence - std::chrono::milliseconds(1);
  EXPECT_TRUE(Kinds().empty());
  EXPECT_EQ(calls_.revokes, 0);
  now_ += std::chrono::milliseconds(1);
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
  EXPECT_EQ(calls_.revokes, 1);
}

TEST_F(RemoteAccessTest, APeerThatWasRevokedIsDisconnected) {
  receiver_->CloseWindow(kKey);
  calls_.is_revoked = true;
  Kinds();
  now_ += kFence;
  Kinds();
  const Status step = connection_->Step(now_, 1 << 20);
  EXPECT_EQ(step.code(), StatusCode::kAborted) << step;
}

// The report came on the socket, the bytes take another way.
TEST_F(RemoteAccessTest, ACopyCountsWhenItsBytesHaveLanded) {
  calls_.has_landed = false;
  Say(Landed());
  EXPECT_TRUE(Kinds().empty());
  EXPECT_EQ(calls_.marks.front(), kMark);
  const uint64_t one = 1;
  ASSERT_EQ(::write(calls_.wait.get(), &one, sizeof(one)), 8);
  pollfd ready{epoll_.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 1) << "nobody is woken";
  calls_.has_landed = true;
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kArrived});
  Hear(*peer_, heard_);
  EXPECT_NE(heard_.Last(SidebandType::kAck), nullptr);
  receiver_->CloseWindow(kKey);
}

TEST_F(RemoteAccessTest, AConfirmedCloseCountsAfterTheBytesOfAllCopies) {
  calls_.has_landed = false;
  Say(Landed());
  receiver_->CloseWindow(kKey);
  Say(FrameOf(SidebandType::kDrained, kKey));
  EXPECT_TRUE(Kinds().empty()) << "a byte may land in a closed window";
  calls_.has_landed = true;
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
}

TEST_F(RemoteAccessTest, AFloodOfCopiesThatDoNotLandEndsTheConnection) {
  calls_.has_landed = false;
  Status step;
  for (int i = 0; i < 20000 && step.ok(); ++i) {
    ASSERT_TRUE(peer_->Send(Landed()).ok());
    step = connection_->Step(Time{}, 1 << 20);
  }
  EXPECT_EQ(step.code(), StatusCode::kInvalidArgument) << step;
  receiver_->CloseWindow(kKey);
}

TEST_F(RemoteAccessTest, APeerThatCannotBeRevokedLeavesItsWindowUnfenced) {
  receiver_->CloseWindow(kKey);
  EXPECT_TRUE(Kinds().empty());
  now_ += kFence;
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kUnfenced});
  now_ += kFence;
  EXPECT_TRUE(Kinds().empty());
  EXPECT_EQ(calls_.revokes, 1);
  Say(FrameOf(SidebandType::kDrained, kKey));
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
}

TEST_F(RemoteAccessTest, APeerThatSaysByeIsNotRevoked) {
  receiver_->CloseWindow(kKey);
  Say(FrameOf(SidebandType::kBye));
  connection_.reset();
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
  EXPECT_EQ(calls_.revokes, 0);
}

}  // namespace
}  // namespace baton
