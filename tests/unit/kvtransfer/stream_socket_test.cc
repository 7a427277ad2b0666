#include "kvtransfer/sideband/stream_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace baton {
namespace {

// A proof of two messages that contain the secret.
class SharedWord final : public PeerProof {
 public:
  SharedWord(PeerSide side, const std::string& word) : side_(side), message_(kPeerProofMagic) {
    message_ += word;
    message_.resize(kPeerProofBytes);
  }
  std::string Begin() override { return message_; }
  StatusOr<std::string> OnMessage(std::string_view message) override {
    if (message != message_) return Status(StatusCode::kUnauthenticated, "another word");
    done_ = true;
    return side_ == PeerSide::kListener ? message_ : "";
  }
  bool done() const override { return done_; }
  // A StreamSocket makes none.
  std::unique_ptr<MessageMac> MakeMac(PeerSide /*from*/) const override { return nullptr; }

 private:
  const PeerSide side_;
  std::string message_;
  bool done_ = false;
};

class StreamSocketTest : public testing::Test {
 protected:
  StreamSocketTest() {
    std::array<int, 2> fds = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()), 0);
    dialler_ = UniqueFd(fds[0]);
    listener_ = UniqueFd(fds[1]);
  }

  std::unique_ptr<StreamSocket> Listener(const std::string& word) {
    return std::make_unique<StreamSocket>(
        std::move(listener_),
        std::make_unique<SharedWord>(PeerSide::kListener, word),
        PeerSide::kListener,
        [this](const Status& why) { refused_ += std::string(Message(why)); });
  }
  std::unique_ptr<StreamSocket> Dialler(const std::string& word) {
    return std::make_unique<StreamSocket>(std::move(dialler_),
                                          std::make_unique<SharedWord>(PeerSide::kDialler, word),
                                          PeerSide::kDialler);
  }

  static SidebandFrame Note(const std::string& text) {
    SidebandFrame frame;
    frame.header.type = SidebandType::kNote;
    frame.header.count = static_cast<uint32_t>(text.size());
    frame.text = text;
    return frame;
  }

  UniqueFd dialler_;
  UniqueFd listener_;
  std::string refused_;
};

TEST_F(StreamSocketTest, FramesFollowTheProof) {
  const auto listener = Listener("secret");
  const auto dialler = Dialler("secret");
  ASSERT_TRUE(dialler->Send(Note("early")).ok());
  EXPECT_FALSE(listener->Receive()->has_value());  // receives the proof and answers
  EXPECT_FALSE(dialler->Receive()->has_value());   // receives the answer and sends the frame
  const auto frame = listener->Receive();
  ASSERT_TRUE(frame.ok() && frame->has_value()) << frame.status();
  EXPECT_EQ((*frame)->text, "early");
  ASSERT_TRUE(listener->Send(Note("back")).ok());
  EXPECT_EQ((**dialler->Receive()).text, "back");
  EXPECT_EQ(refused_, "");
}

TEST_F(StreamSocketTest, AnotherSecretIsRefusedAndReported) {
  const auto listener = Listener("secret");
  const auto dialler = Dialler("wrong");
  ASSERT_TRUE(dialler->Send(Note("early")).ok());
  EXPECT_EQ(listener->Receive().status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(refused_, "another word");
}

TEST_F(StreamSocketTest, AFrameWithoutAProofIsRefused) {
  const auto listener = Listener("secret");
  StreamSocket stranger(std::move(dialler_));
  ASSERT_TRUE(stranger.Send(Note("let me in")).ok());
  EXPECT_EQ(listener->Receive().status().code(), StatusCode::kUnauthenticated);
  EXPECT_NE(refused_, "");
}

TEST_F(StreamSocketTest, TheDiallerSendsNoFrameToAStranger) {
  const auto dialler = Dialler("secret");
  ASSERT_TRUE(dialler->Send(Note("secret data")).ok());
  std::array<char, 4096> bytes = {};
  // Only the proof arrives.
  EXPECT_EQ(::recv(listener_.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(kPeerProofBytes));
  EXPECT_EQ(dialler->waiting(), 0u);
  EXPECT_EQ(::recv(listener_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT), -1);
}

}  // namespace
}  // namespace baton
