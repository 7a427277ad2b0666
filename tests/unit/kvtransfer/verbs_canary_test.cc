// The canary of verbs: no byte of an aborted session lands in the next one, also when the sender
// never confirms that it stopped.

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/hash.h"
#include "common/base/local_socket.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/one_sided/receiver.h"
#include "kvtransfer/verbs/rail_choice.h"
#include "kvtransfer/verbs/verbs_access.h"
#include "kvtransfer/wire/host_dma_queue.h"
#include "tests/fakes/host_buffer.h"
#include "tests/unit/kvtransfer/fake_verbs.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

constexpr std::byte kOfA{0xAA};
constexpr std::byte kOfB{0xBB};

class VerbsCanaryTest : public testing::Test {
 protected:
  // Session A's sender has the window, and then answers nothing any more.
  void SetUp() override {
    verbs_.devices = {
        {"a",
         true,
         IBV_LINK_LAYER_ETHERNET,
         {FakeVerbs::GidEntry(IBV_GID_TYPE_ROCE_V2,
                              {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1})}}};
    rails_ = *OpenRails(verbs_.library(), {}, {}, {});
    int fds[2] = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    peer_ = std::make_unique<IpcSocket>(UniqueFd(fds[0]));
    OneSidedReceiver::Options options;
    options.epoll_fd = epoll_.get();
    options.fence_timeout = kFence;
    receiver_.emplace(windows_, *HostDmaQueue::Create(), std::move(options));
    server_.emplace(*ListenLocal(fmt::format("baton-test-{:016x}", RandomId()), SOCK_SEQPACKET),
                    epoll_.get(),
                    FrameServer::Options{});
    region_ = windows_.Add(memory_);
    auto access = *VerbsAccess::Create(
        "a peer",
        rails_,
        [](const Buffer&) { return std::vector<uint32_t>{7}; },
        nullptr,
        *messages_);
    connection_ =
        receiver_->Add(std::make_unique<IpcSocket>(UniqueFd(fds[1])), std::move(access), Time{});
    ASSERT_TRUE(windows_.Open({kKey, region_->id(), {{0, memory_.size()}}}).ok());
    SidebandFrame hello = FrameOf(SidebandType::kHello);
    hello.header.op = region_->id();
    Handshake greeting;
    greeting.rails = {{.port = rails_[0]->port(), .rkey = 0, .index = 0, .queue_pairs = {{9, 1}}}};
    hello.text = EncodeHandshake(greeting);
    Say(hello);
    Say(FrameOf(SidebandType::kAsk, kKey));
    WriteOfA();
    ASSERT_EQ(memory_.data()[0], kOfA) << "an open window takes no write";
  }
  void TearDown() override { connection_.reset(); }

  void Say(const SidebandFrame& frame) {
    ASSERT_TRUE(peer_->Send(frame).ok());
    const Status step = connection_->Step(Time{}, 1 << 20);
    ASSERT_TRUE(step.ok()) << step;
  }
  void WriteOfA() { verbs_.WriteFromPeer({memory_.data(), memory_.size()}, kOfA); }
  // The kinds of the arrivals since the last call.
  std::vector<Arrival::Kind> Kinds() {
    receiver_->Poll(now_, *server_);
    std::array<Arrival, 8> arrivals;
    std::vector<Arrival::Kind> kinds;
    const size_t count = windows_.TakeArrivals(arrivals);
    for (const Arrival& arrival : std::span(arrivals).first(count)) kinds.push_back(arrival.kind);
    return kinds;
  }
  // A is aborted, and its sender has had all the time that it gets.
  std::vector<Arrival::Kind> AbortA() {
    receiver_->CloseWindow(kKey);
    EXPECT_TRUE(Kinds().empty()) << "A's sender can still write";
    now_ += kFence;
    return Kinds();
  }

  Time now_{std::chrono::hours(1)};
  const UniqueFd epoll_ = *MakeEpoll();
  FakeVerbs verbs_;
  std::vector<std::unique_ptr<Rail>> rails_;
  std::unique_ptr<VerbsSocket> messages_ = UnconnectedVerbsSocket();
  HostBuffer memory_{4096};
  WindowTable windows_;
  std::unique_ptr<Region> region_;
  std::optional<OneSidedReceiver> receiver_;
  std::optional<FrameServer> server_;
  std::unique_ptr<FrameSocket> peer_;
  std::unique_ptr<PeerConnection> connection_;
};

TEST_F(VerbsCanaryTest, ASenderThatNeverConfirmsWritesNothingIntoTheNextSession) {
  ASSERT_EQ(AbortA(), std::vector{Arrival::Kind::kClosed});
  std::fill(memory_.data(), memory_.data() + memory_.size(), kOfB);
  WriteOfA();
  EXPECT_EQ(std::count(memory_.data(), memory_.data() + memory_.size(), kOfB), 4096);
}

TEST_F(VerbsCanaryTest, BlocksAreNotReusedWhileAQueuePairCannotBeDestroyed) {
  verbs_.destroy_error = EBUSY;
  EXPECT_EQ(AbortA(), std::vector{Arrival::Kind::kUnfenced});
  connection_.reset();
  EXPECT_TRUE(Kinds().empty());
  verbs_.destroy_error = 0;
  EXPECT_EQ(Kinds(), std::vector{Arrival::Kind::kClosed});
  std::fill(memory_.data(), memory_.data() + memory_.size(), kOfB);
  WriteOfA();
  EXPECT_EQ(std::count(memory_.data(), memory_.data() + memory_.size(), kOfB), 4096);
}

}  // namespace
}  // namespace baton
