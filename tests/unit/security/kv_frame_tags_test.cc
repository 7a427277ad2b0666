// Authenticated frames of KV over tcp, with an attacker between the two workers.

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvtransfer/tcp/tcp_socket.h"
#include "kvtransfer/tcp/tcp_transport.h"
#include "kvtransfer/wire/frame.h"
#include "tests/conformance/host_buffer.h"
#include "tests/unit/security/test_proofs.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPayloadBytes = 1000;
constexpr size_t kTagBytes = sizeof(MacTag);
constexpr size_t kPrefaceBytes = sizeof(Preface) + kTagBytes;
constexpr size_t kHeadBytes = sizeof(WriteHeader) + sizeof(WriteRun) + kTagBytes;
constexpr size_t kFrameBytes = kHeadBytes + kPayloadBytes + kTagBytes;
constexpr size_t kHandshakeBytes = 2 * kPeerProofBytes;  // that each side sends

// Both connections of an attacker between a sender and a receiver. Forwards the handshake. Then it
// waits for all that the sender has to send, and forwards what the attacker makes of that.
class Attacker final {
 public:
  using Edit = std::function<std::string(std::string)>;

  // `descriptor` is the receiver's.
  explicit Attacker(std::string_view descriptor) {
    const size_t bar = descriptor.find('|', 2);
    receiver_address_ = *ParseTcpAddress(descriptor.substr(2, bar - 2));
    TransportOptions options;
    TcpListener listener = *ListenTcp("127.0.0.1:0", options);
    listener_ = std::move(listener.socket);
    descriptor_ = "1|" + listener.advertised.ToString();
    if (bar != std::string_view::npos) descriptor_ += descriptor.substr(bar);
  }

  // For the sender.
  const std::string& descriptor() const { return descriptor_; }
  // What to make of the preface and of `frames` frames.
  void EditFrames(size_t frames, Edit edit) {
    awaited_ = kHandshakeBytes + kPrefaceBytes + frames * kFrameBytes;
    edit_frames_ = std::move(edit);
  }
  // What to make of the acknowledgements, in the pieces in which they come.
  void EditAcks(Edit edit) { edit_acks_ = std::move(edit); }

  // When one side closes its connection, the other one's is closed, too.
  void Pump() {
    if (!accepted_) {
      sender_.socket = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (!sender_.socket.valid()) return;
      receiver_.socket = *ConnectTcp(receiver_address_);
      accepted_ = true;
    }
    if (!sender_.socket.valid() || !receiver_.socket.valid()) return;
    const std::string sent = sender_.Take();
    from_sender_ += sent;
    if (from_sender_.size() <= kHandshakeBytes) {
      receiver_.out += sent;
    } else if (from_sender_.size() == awaited_) {
      receiver_.out += edit_frames_(from_sender_.substr(kHandshakeBytes));
      awaited_ = 0;
    }
    std::string answer = receiver_.Take();
    const bool is_handshake = from_receiver_ < kHandshakeBytes;
    from_receiver_ += answer.size();
    if (!is_handshake && !answer.empty() && edit_acks_) answer = edit_acks_(std::move(answer));
    sender_.out += answer;
    receiver_.Flush();
    sender_.Flush();
    if (sender_.closed || receiver_.closed) {
      sender_.socket.Reset();
      receiver_.socket.Reset();
    }
  }

 private:
  struct Side {
    UniqueFd socket;
    std::string out;
    bool closed = false;

    std::string Take() {
      std::array<char, 8192> bytes;
      const ssize_t got = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got > 0) return std::string(bytes.data(), static_cast<size_t>(got));
      closed = got == 0 || (errno != EAGAIN && errno != ENOTCONN);
      return "";
    }
    void Flush() {
      const ssize_t sent = ::send(socket.get(), out.data(), out.size(), MSG_NOSIGNAL);
      if (sent > 0) out.erase(0, static_cast<size_t>(sent));
    }
  };

  TcpAddress receiver_address_;
  UniqueFd listener_;
  bool accepted_ = false;
  Side sender_;
  Side receiver_;
  std::string descriptor_;
  std::string from_sender_;
  size_t from_receiver_ = 0;
  size_t awaited_ = 0;
  Edit edit_frames_;
  Edit edit_acks_;
};

class KvFrameTagsTest : public testing::Test {
 protected:
  struct Settings {
    std::string secret = kSecret;
    bool authenticates = true;
  };

  std::unique_ptr<Transport> Make(const Settings& settings) {
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    options.connect_timeout = std::chrono::seconds(1);
    options.proofs = ProofsOf(settings.secret, refusals_);
    options.authenticate_frames = settings.authenticates;
    return *TcpTransport::Create(
        options, nullptr, [this](std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  void SetUp() override { Listen({}); }
  void Listen(const Settings& settings) {
    receiver_ = Make(settings);
    region_ = *receiver_->Register(arena_);
    descriptor_ = *receiver_->Listen();
    ASSERT_TRUE(receiver_->OpenWindow({1, region_->id(), {{0, arena_.size()}}}).ok());
  }
  void TearDown() override {
    channel_.reset();
    source_region_.reset();
    receiver_->CloseWindow(1);
    region_.reset();
  }
  Status Connect(const std::string& descriptor, const Settings& settings) {
    channel_.reset();
    source_region_.reset();
    sender_ = Make(settings);
    source_region_ = *sender_->Register(source_);
    BATON_ASSIGN_OR_RETURN(channel_, sender_->Connect(*source_region_, descriptor, region_->id()));
    return OkStatus();
  }
  void ConnectThroughAttacker() {
    attacker_ = std::make_unique<Attacker>(descriptor_);
    const Status connected = Connect(attacker_->descriptor(), {});
    ASSERT_TRUE(connected.ok()) << connected;
  }
  void Write(uint64_t tag) {
    const WriteRun run{0, tag * kPayloadBytes, kPayloadBytes};
    WriteOp op;
    op.window_key = 1;
    op.tag = tag;
    op.runs = {&run, 1};
    ASSERT_TRUE(channel_->PostWrite(op).ok());
  }
  // Polls all until `count` writes have ended.
  void DriveUntilEnded(size_t count) {
    const SteadyClock clock;
    const Time limit = clock.Now() + std::chrono::seconds(20);
    while (ended_.size() < count) {
      ASSERT_LT(clock.Now(), limit) << "the writes do not end";
      Drive();
    }
    // The receiver may have more to read.
    for (int i = 0; i < 20; ++i) Drive();
  }
  void Drive() {
    const Time now = SteadyClock().Now();
    std::array<Arrival, 4> arrivals;
    arrived_ += receiver_->Poll(now, arrivals);
    if (attacker_) attacker_->Pump();
    std::array<WriteEvent, 4> events;
    const size_t count = channel_->Poll(now, events);
    ended_.insert(ended_.end(), events.begin(), events.begin() + static_cast<ptrdiff_t>(count));
  }
  // The writes end with an error, and `arrived` of them have arrived.
  void ExpectRefused(size_t writes, size_t arrived) {
    DriveUntilEnded(writes);
    for (const WriteEvent& event : ended_) EXPECT_EQ(event.kind, WriteEvent::Kind::kFailed);
    EXPECT_EQ(arrived_, arrived);
    EXPECT_FALSE(channel_->status().ok());
  }

  MetricsRegistry metrics_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>(metrics_);
  std::string log_;
  const HostBuffer arena_{4 * kPayloadBytes};
  const HostBuffer source_{kPayloadBytes};
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Region> region_;
  std::string descriptor_;
  std::unique_ptr<Transport> sender_;
  std::unique_ptr<Region> source_region_;
  std::unique_ptr<Attacker> attacker_;
  std::unique_ptr<Channel> channel_;
  std::vector<WriteEvent> ended_;
  size_t arrived_ = 0;
};

TEST_F(KvFrameTagsTest, WhatIsForwardedAsItWasArrives) {
  ConnectThroughAttacker();
  attacker_->EditFrames(2, [](std::string bytes) { return bytes; });
  Write(0);
  Write(1);
  DriveUntilEnded(2);
  for (const WriteEvent& event : ended_) EXPECT_EQ(event.kind, WriteEvent::Kind::kDone);
  EXPECT_EQ(arrived_, 2u);
}

class ChangedBitTest : public KvFrameTagsTest, public testing::WithParamInterface<size_t> {};

TEST_P(ChangedBitTest, EndsTheConnectionWithPeerAndReason) {
  ConnectThroughAttacker();
  attacker_->EditFrames(1, [](std::string bytes) {
    bytes[GetParam()] = static_cast<char>(bytes[GetParam()] ^ 0x10);
    return bytes;
  });
  Write(0);
  ExpectRefused(1, 0);
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("baton_security_refused_total{port=\"KvData\"} 1"));
  if (GetParam() >= kPrefaceBytes) {  // Refusals has the log line of the preface
    EXPECT_THAT(log_, HasSubstr("KV data connection from 127.0.0.1:"));
    EXPECT_THAT(log_, HasSubstr("has a wrong tag"));
  }
  // The next connection works.
  ended_.clear();
  ASSERT_TRUE(Connect(descriptor_, {}).ok());
  Write(1);
  DriveUntilEnded(1);
  EXPECT_EQ(ended_.at(0).kind, WriteEvent::Kind::kDone);
}

INSTANTIATE_TEST_SUITE_P(Offsets,
                         ChangedBitTest,
                         testing::Values(offsetof(Preface, region),
                                         sizeof(Preface) + 5,  // its tag
                                         kPrefaceBytes + offsetof(WriteHeader, window_key),  //
                                         kPrefaceBytes + offsetof(WriteHeader, tag),         //
                                         kPrefaceBytes + sizeof(WriteHeader) +
                                             sizeof(uint64_t),            // the destination
                                         kPrefaceBytes + kHeadBytes - 1,  // the tag of the head
                                         kPrefaceBytes + kHeadBytes,      // the payload
                                         kPrefaceBytes + kHeadBytes + kPayloadBytes - 1,  //
                                         kPrefaceBytes + kFrameBytes - 1));               // its tag

TEST_F(KvFrameTagsTest, ARepeatedFrameIsRefused) {
  ConnectThroughAttacker();
  attacker_->EditFrames(
      1, [](const std::string& bytes) { return bytes + bytes.substr(kPrefaceBytes, kFrameBytes); });
  attacker_->EditAcks([](const std::string&) { return ""; });
  Write(0);
  ExpectRefused(1, 1);
  EXPECT_THAT(log_, HasSubstr("the header of a write has a wrong tag"));
}

TEST_F(KvFrameTagsTest, FramesInAnotherOrderAreRefused) {
  ConnectThroughAttacker();
  attacker_->EditFrames(2, [](const std::string& bytes) {
    return bytes.substr(0, kPrefaceBytes) + bytes.substr(kPrefaceBytes + kFrameBytes) +
           bytes.substr(kPrefaceBytes, kFrameBytes);
  });
  Write(0);
  Write(1);
  ExpectRefused(2, 0);
  EXPECT_THAT(log_, HasSubstr("the header of a write has a wrong tag"));
}

TEST_F(KvFrameTagsTest, AFrameAfterOneThatWasLeftOutIsRefused) {
  ConnectThroughAttacker();
  attacker_->EditFrames(2, [](const std::string& bytes) {
    return bytes.substr(0, kPrefaceBytes) + bytes.substr(kPrefaceBytes + kFrameBytes);
  });
  Write(0);
  Write(1);
  ExpectRefused(2, 0);
}

// Payloads of two writes change places: each has a tag, but not the one of this place.
TEST_F(KvFrameTagsTest, APayloadInAnotherPlaceIsRefused) {
  ConnectThroughAttacker();
  attacker_->EditFrames(2, [](std::string bytes) {
    const size_t first = kPrefaceBytes + kHeadBytes;
    const size_t second = first + kFrameBytes;
    const std::string payload = bytes.substr(second, kPayloadBytes + kTagBytes);
    return bytes.replace(first, payload.size(), payload);
  });
  Write(0);
  Write(1);
  ExpectRefused(2, 0);
  EXPECT_THAT(log_, HasSubstr("the payload of a write has a wrong tag"));
}

TEST_F(KvFrameTagsTest, AChangedAcknowledgementIsNotBelieved) {
  ConnectThroughAttacker();
  attacker_->EditFrames(1, [](std::string bytes) { return bytes; });
  attacker_->EditAcks([](std::string bytes) {
    bytes[offsetof(WriteAck, op)] = static_cast<char>(bytes[offsetof(WriteAck, op)] ^ 1);
    return bytes;
  });
  Write(0);
  ExpectRefused(1, 1);
  EXPECT_THAT(std::string(Message(ended_.at(0).status)),
              HasSubstr("an acknowledgement has a wrong tag"));
}

TEST_F(KvFrameTagsTest, AReceiverThatRequiresTagsRefusesASenderWithoutThem) {
  const std::string address = descriptor_.substr(0, descriptor_.find('|', 2));
  ASSERT_TRUE(Connect(address, {.authenticates = false}).ok());
  Write(0);
  ExpectRefused(1, 0);
  EXPECT_THAT(log_, HasSubstr("transfer.tcp_authenticate_frames"));
}

TEST_F(KvFrameTagsTest, ASenderFollowsWhatTheReceiverRequires) {
  ASSERT_TRUE(Connect(descriptor_, {.authenticates = false}).ok());
  Write(0);
  DriveUntilEnded(1);
  EXPECT_EQ(ended_.at(0).kind, WriteEvent::Kind::kDone);
  const Status refused = Connect(descriptor_, {.secret = "", .authenticates = false});
  EXPECT_THAT(std::string(Message(refused)), HasSubstr("security.cluster_secret_file"));
}

TEST_F(KvFrameTagsTest, AReceiverThatDoesNotRequireTagsChecksThoseThatCome) {
  TearDown();
  Listen({.authenticates = false});
  ConnectThroughAttacker();
  attacker_->EditFrames(1, [](std::string bytes) {
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    return bytes;
  });
  Write(0);
  ExpectRefused(1, 0);
}

// The rest of a payload whose window was closed is discarded, with its tag. Later frames count.
TEST_F(KvFrameTagsTest, ADiscardedPayloadDoesNotEndTheConnection) {
  ASSERT_TRUE(receiver_->OpenWindow({2, region_->id(), {{0, arena_.size()}}}).ok());
  ASSERT_TRUE(Connect(descriptor_, {}).ok());
  receiver_->CloseWindow(1);
  Write(0);
  const WriteRun run{0, 0, kPayloadBytes};
  WriteOp op;
  op.window_key = 2;
  op.runs = {&run, 1};
  ASSERT_TRUE(channel_->PostWrite(op).ok());
  DriveUntilEnded(2);
  EXPECT_EQ(ended_.at(0).kind, WriteEvent::Kind::kFailed);
  EXPECT_EQ(ended_.at(1).kind, WriteEvent::Kind::kDone);
  EXPECT_TRUE(channel_->status().ok());
  receiver_->CloseWindow(2);
}

}  // namespace
}  // namespace baton
