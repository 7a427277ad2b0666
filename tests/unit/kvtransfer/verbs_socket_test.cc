#include "kvtransfer/verbs/verbs_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/sideband/stream_socket.h"
#include "kvtransfer/verbs/rail_choice.h"
#include "tests/fakes/loopback_verbs.h"
#include "tests/unit/kvtransfer/one_sided_peer.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

SidebandFrame NoteOf(std::string text) {
  SidebandFrame note = FrameOf(SidebandType::kNote, kKey);
  note.text = std::move(text);
  return note;
}

bool IsReadable(const FrameSocket& socket) {
  pollfd ready{socket.fd(), POLLIN, 0};
  return ::poll(&ready, 1, 0) == 1;
}

// Both ends of a TCP connection, and of RDMA devices that reach each other.
class VerbsSocketTest : public testing::Test {
 protected:
  VerbsSocketTest() {
    VerbsOptions options;
    options.devices = {"loop0"};
    ours_ = *OpenRails(LoopbackVerbs(), options, {}, {});
    options.devices = {"loop1"};
    theirs_ = *OpenRails(LoopbackVerbs(), options, {}, {});
    std::array<int, 2> fds = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    socket_ = *VerbsSocket::Create(std::make_unique<StreamSocket>(UniqueFd(fds[0])));
    peer_stream_ = std::make_unique<StreamSocket>(UniqueFd(fds[1]));
  }

  // What the socket receives next; an error ends it.
  StatusOr<std::optional<SidebandFrame>> Next() { return socket_->Receive(); }
  std::string ErrorOfNext() {
    const auto next = Next();
    EXPECT_FALSE(next.ok());
    return std::string(Message(next.status()));
  }

  std::vector<std::unique_ptr<Rail>> ours_;
  std::vector<std::unique_ptr<Rail>> theirs_;
  std::unique_ptr<VerbsSocket> socket_;
  std::unique_ptr<StreamSocket> peer_stream_;
};

// The peer is a VerbsSocket, too.
class VerbsSocketPairTest : public VerbsSocketTest {
 protected:
  VerbsSocketPairTest() {
    peer_ = *VerbsSocket::Create(std::move(peer_stream_));
    const QueuePairAddress ours = *socket_->OpenMessages(*ours_[0]);
    const QueuePairAddress theirs = *peer_->OpenMessages(*theirs_[0]);
    EXPECT_TRUE(socket_->ConnectMessages(theirs_[0]->port(), theirs, PeerSide::kListener).ok());
    EXPECT_TRUE(peer_->ConnectMessages(ours_[0]->port(), ours, PeerSide::kDialler).ok());
    Hear(*socket_, heard_);
    Hear(*peer_, peer_heard_);
  }
  // Lets both ends read and write until nothing more happens.
  void Drive() {
    for (int i = 0; i < 200; ++i) {
      for (auto [socket, heard] :
           {std::pair(socket_.get(), &heard_), std::pair(peer_.get(), &peer_heard_)}) {
        Hear(*socket, *heard);
        EXPECT_TRUE(socket->Flush().ok());
      }
    }
  }

  std::unique_ptr<VerbsSocket> peer_;
  baton::Heard heard_;
  baton::Heard peer_heard_;
};

TEST_F(VerbsSocketPairTest, FramesOfEverySizeArriveInOrder) {
  std::vector<std::string> texts;
  for (size_t bytes = 1; bytes <= kMaxSidebandNoteBytes; bytes *= 3) {
    texts.emplace_back(bytes, static_cast<char>('a' + texts.size()));
  }
  texts.emplace_back(kMaxSidebandNoteBytes, 'z');
  for (const std::string& text : texts) {
    ASSERT_TRUE(socket_->Send(NoteOf(text)).ok());
    ASSERT_TRUE(peer_->Send(NoteOf(text)).ok());
  }
  Drive();
  ASSERT_EQ(peer_heard_.frames.size(), texts.size());
  ASSERT_EQ(heard_.frames.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(peer_heard_.frames[i].text, texts[i]);
    EXPECT_EQ(heard_.frames[i].text, texts[i]);
  }
}

// Neither end reads before both have sent all, so both are out of credits.
TEST_F(VerbsSocketPairTest, EndsThatAreBothOutOfCreditsGoOn) {
  constexpr size_t kNotes = 100;
  for (size_t i = 0; i < kNotes; ++i) {
    ASSERT_TRUE(socket_->Send(NoteOf(std::string(5000, 'a'))).ok());
    ASSERT_TRUE(peer_->Send(NoteOf(std::string(7000, 'b'))).ok());
  }
  EXPECT_GT(socket_->waiting(), 0u);
  EXPECT_GT(peer_->waiting(), 0u);
  Drive();
  EXPECT_EQ(peer_heard_.frames.size(), kNotes);
  EXPECT_EQ(heard_.frames.size(), kNotes);
  EXPECT_EQ(socket_->waiting() + peer_->waiting(), 0u);
}

// As a receiver does whose answers wait: it reads on only when they are sent.
TEST_F(VerbsSocketPairTest, AnEndThatReadsNothingStillSends) {
  constexpr size_t kNotes = 300;
  for (size_t i = 0; i < kNotes; ++i) socket_->Queue(NoteOf(std::string(5000, 'a')));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(socket_->Flush().ok());
    if (socket_->waiting() == 0) break;
    Hear(*peer_, peer_heard_);
    EXPECT_TRUE(IsReadable(*socket_)) << "credits came, and nobody is woken";
  }
  Hear(*peer_, peer_heard_);
  EXPECT_EQ(socket_->waiting(), 0u);
  EXPECT_EQ(peer_heard_.frames.size(), kNotes);
}

TEST_F(VerbsSocketPairTest, FramesThatAreQueuedTogetherAreOneMessage) {
  for (int i = 0; i < 40; ++i) socket_->Queue(NoteOf("x"));
  ASSERT_TRUE(socket_->Flush().ok());
  EXPECT_EQ(socket_->waiting(), 0u) << "each would take one of 16 credits";
  Drive();
  EXPECT_EQ(peer_heard_.frames.size(), 40u);
}

TEST_F(VerbsSocketPairTest, AFrameAndACreditWakeTheirReader) {
  Drive();
  EXPECT_FALSE(IsReadable(*peer_));
  ASSERT_TRUE(socket_->Send(NoteOf("x")).ok());
  EXPECT_TRUE(IsReadable(*peer_));
  Drive();
  EXPECT_FALSE(IsReadable(*peer_));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(socket_->Send(NoteOf(std::string(5000, 'a'))).ok());
  Hear(*socket_, heard_);
  EXPECT_FALSE(IsReadable(*socket_));
  const size_t waiting = socket_->waiting();
  EXPECT_GT(waiting, 0u);
  Hear(*peer_, peer_heard_);
  EXPECT_TRUE(IsReadable(*socket_)) << "credits came, and nobody is woken";
  Hear(*socket_, heard_);
  EXPECT_LT(socket_->waiting(), waiting);
}

// A frame that Flush finds while it looks for credits must not be forgotten.
TEST_F(VerbsSocketPairTest, AFrameThatComesDuringAFlushWakesItsReader) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(socket_->Send(NoteOf(std::string(5000, 'a'))).ok());
  Hear(*socket_, heard_);
  ASSERT_TRUE(peer_->Send(NoteOf("x")).ok());
  ASSERT_TRUE(socket_->Flush().ok());
  EXPECT_TRUE(IsReadable(*socket_));
  Hear(*socket_, heard_);
  ASSERT_EQ(heard_.frames.size(), 1u);
}

TEST_F(VerbsSocketPairTest, AGoodbyeIsTheLastFrame) {
  ASSERT_TRUE(socket_->Send(FrameOf(SidebandType::kBye)).ok());
  Drive();
  ASSERT_EQ(peer_heard_.frames.size(), 1u);
  ASSERT_TRUE(socket_->Send(NoteOf("late")).ok());
  Drive();
  EXPECT_EQ(peer_heard_.frames.size(), 1u);
}

TEST_F(VerbsSocketPairTest, AQueueThatBreaksEndsTheSocketWithTheRail) {
  peer_ = *VerbsSocket::Create(std::make_unique<StreamSocket>(*MakeEventFd()));
  EXPECT_TRUE(socket_->Send(NoteOf("x")).ok());
  EXPECT_THAT(ErrorOfNext(), HasSubstr("an RDMA message failed on loop0 port 1"));
  EXPECT_TRUE(ours_[0]->is_paused(SteadyClock().Now()));
}

// A peer that speaks to the devices itself.
class HostileMessagesTest : public VerbsSocketTest {
 protected:
  HostileMessagesTest() {
    const QueuePairAddress address = *socket_->OpenMessages(*ours_[0]);
    completions_ = *CompletionQueue::Create(*theirs_[0], 64);
    pair_ = *QueuePair::Create(*theirs_[0], *completions_, {.sends = 32, .receives = 32});
    EXPECT_TRUE(
        socket_->ConnectMessages(theirs_[0]->port(), pair_->address(), PeerSide::kListener).ok());
    EXPECT_TRUE(pair_->Connect(ours_[0]->port(), address, /*sends=*/true).ok());
  }
  void SendBytes(std::string bytes) {
    ibv_sge source{};
    source.addr = reinterpret_cast<uintptr_t>(bytes.data());
    source.length = static_cast<uint32_t>(bytes.size());
    ibv_send_wr request{};
    request.opcode = IBV_WR_SEND;
    request.sg_list = &source;
    request.num_sge = 1;
    ASSERT_TRUE(pair_->PostSends(&request).ok());
  }
  static std::string WithCredits(uint32_t credits, const std::string& payload) {
    return std::string(reinterpret_cast<const char*>(&credits), sizeof(credits)) + payload;
  }

  std::unique_ptr<CompletionQueue> completions_;
  std::unique_ptr<QueuePair> pair_;
};

TEST_F(HostileMessagesTest, CreditsThatWereNotUsedAreRefused) {
  SendBytes(WithCredits(1, ""));
  EXPECT_EQ(ErrorOfNext(), "the peer gave 1 credits back; 0 of 16 were used");
}

TEST_F(HostileMessagesTest, AMessageWithoutAHeaderIsRefused) {
  SendBytes("abc");
  EXPECT_EQ(ErrorOfNext(), "the peer sent a message of 3 bytes; a message has 4 to 4096");
}

TEST_F(HostileMessagesTest, AFrameLongerThanAnyIsRefused) {
  SendBytes(WithCredits(0, std::string(8, '\xff')));
  EXPECT_THAT(ErrorOfNext(), HasSubstr("a frame of 4294967295 bytes; at most"));
}

TEST_F(HostileMessagesTest, EachFrameHasItsWay) {
  SendBytes(WithCredits(0, EncodeStreamFrame(FrameOf(SidebandType::kBye))));
  EXPECT_EQ(ErrorOfNext(), "a frame of type 5 came over RDMA; hello, welcome and bye take TCP");
  ASSERT_TRUE(peer_stream_->Send(FrameOf(SidebandType::kAsk, kKey)).ok());
  EXPECT_EQ(ErrorOfNext(), "a frame of type 2 came over TCP; only hello, welcome and bye take it");
}

// It has receive requests enough, and gives no credit back.
TEST_F(HostileMessagesTest, ThePeerGetsNoMoreMessagesThanItHasCredits) {
  std::vector<char> memory(MessageQueue::kSlotBytes);
  ibv_sge into{reinterpret_cast<uintptr_t>(memory.data()), MessageQueue::kSlotBytes, 0};
  for (int i = 0; i < 32; ++i) {
    ibv_recv_wr request{};
    request.sg_list = &into;
    request.num_sge = 1;
    ASSERT_TRUE(pair_->PostReceives(&request).ok());
  }
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(socket_->Send(NoteOf(std::string(4096, 'n'))).ok());
  std::array<ibv_wc, 64> received;
  EXPECT_EQ(*completions_->Poll(received), 0u) << "this end may not be connected yet";
  SendBytes(WithCredits(0, ""));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Next().ok());
  EXPECT_EQ(*completions_->Poll(received), MessageQueue::kSlots - 1);
}

TEST_F(HostileMessagesTest, APeerThatEndsIsNoticed) {
  peer_stream_.reset();
  EXPECT_EQ(Next().status().code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace baton
