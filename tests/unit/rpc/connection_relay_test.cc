// What passes between clients and gRPC. The test plays gRPC's part.
#include "common/rpc/connection_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log/log.h"
#include "common/rpc/connection_acceptor.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/http2_frames.h"
#include "tests/support/raw_http.h"

namespace baton {
namespace {

using http2::Frame;
using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(30);

// One end of a connection: gRPC's, or the client's.
class End final {
 public:
  explicit End(UniqueFd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }
  void Close() { fd_.Reset(); }
  // Sends `bytes`; gives up after `limit`, and returns how many were taken.
  size_t Send(std::string_view bytes, Duration limit = kLimit) {
    const Time end = SteadyClock().Now() + limit;
    size_t sent = 0;
    while (sent < bytes.size() && SteadyClock().Now() < end) {
      const ssize_t now = ::send(fd(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (now > 0) sent += static_cast<size_t>(now);
      if (now <= 0) Wait(POLLOUT, 10);
    }
    return sent;
  }
  // Reads until `bytes` have arrived, the end, or the limit.
  std::string Read(size_t bytes) {
    const Time end = SteadyClock().Now() + kLimit;
    std::string text;
    char part[65536];
    while (text.size() < bytes && SteadyClock().Now() < end) {
      const ssize_t got = ::recv(fd(), part, std::min(sizeof(part), bytes - text.size()), 0);
      if (got == 0) break;
      if (got > 0) text.append(part, static_cast<size_t>(got));
      if (got < 0) Wait(POLLIN, 10);
    }
    return text;
  }

 private:
  void Wait(short events, int ms) {
    pollfd waits{fd(), events, 0};
    ::poll(&waits, 1, ms);
  }
  UniqueFd fd_;
};

class ConnectionRelayTest : public ::testing::Test {
 protected:
  void Start(Duration handshake_timeout = kLimit) {
    ConnectionAcceptor::Options options;
    options.connections = 100;
    options.connections_per_address = 100;
    options.handshake_timeout = handshake_timeout;
    options.stranger_bytes = size_t{64} << 20;
    acceptor_ = ConnectionAcceptor::Listen({"127.0.0.1", 0}, std::move(options)).value();
    acceptor_->Start([this](UniqueFd fd) {
      std::lock_guard lock(mutex_);
      taken_.push_back(std::make_unique<End>(std::move(fd)));
    });
    client_ = std::make_unique<RawConnection>(fmt::format("127.0.0.1:{}", acceptor_->port()));
    ASSERT_TRUE(client_->connected());
  }
  size_t taken() {
    std::lock_guard lock(mutex_);
    return taken_.size();
  }
  End& grpc() {
    const Time end = SteadyClock().Now() + kLimit;
    while (taken() == 0 && SteadyClock().Now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::lock_guard lock(mutex_);
    return *taken_.at(0);
  }
  // Frames of data with a known content.
  static std::string Body(size_t frames) {
    std::string all;
    for (size_t i = 0; i < frames; ++i) {
      all += Frame(http2::kData, 0, 1, std::string(16'000, static_cast<char>('a' + i % 26)));
    }
    return all;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<End>> taken_;
  std::unique_ptr<RawConnection> client_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // ends first, because its thread uses the others
};

TEST_F(ConnectionRelayTest, BytesPassBothWaysAtOnce) {
  Start();
  const std::string request =
      http2::Greeting() + Frame(http2::kHeaders, 4, 1, http2::Header("POST", "/a/b")) + Body(1000);
  const std::string answer = Body(1000);
  auto sending = std::async(std::launch::async, [&] { return client_->Send(request); });
  auto answering = std::async(std::launch::async, [&] { return grpc().Send(answer); });
  End reader(UniqueFd(::dup(client_->fd())));
  auto reading = std::async(std::launch::async, [&] { return reader.Read(answer.size()); });
  EXPECT_EQ(grpc().Read(request.size()), request);
  EXPECT_TRUE(sending.get());
  EXPECT_EQ(answering.get(), answer.size());
  EXPECT_EQ(reading.get(), answer);
}

TEST_F(ConnectionRelayTest, AClientThatDoesNotReadHoldsTheServerBack) {
  Start();
  ASSERT_TRUE(client_->Send(http2::Greeting()));
  const std::string answer = Body(4000);  // 64 MB
  const size_t sent = grpc().Send(answer, std::chrono::milliseconds(500));
  EXPECT_LT(sent, size_t{16} << 20) << "more than the buffers of the kernel";
  grpc().Close();
  std::string received = client_->ReadToEnd(kLimit).value_or("no end");
  EXPECT_EQ(received.size(), sent);
  EXPECT_EQ(received, answer.substr(0, sent));
}

TEST_F(ConnectionRelayTest, AServerThatDoesNotReadHoldsTheClientBack) {
  Start();
  ASSERT_TRUE(client_->Send(http2::Greeting() +
                            Frame(http2::kHeaders, 4, 1, http2::Header("POST", "/a/b"))));
  const std::string piece = Body(4);
  size_t sent = 0;
  ::fcntl(client_->fd(), F_SETFL, O_NONBLOCK);
  const Time end = SteadyClock().Now() + std::chrono::milliseconds(500);
  while (SteadyClock().Now() < end) {
    const ssize_t now = ::send(client_->fd(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (now > 0) sent += static_cast<size_t>(now);
    if (now <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_LT(sent, size_t{48} << 20);
  }
}

TEST_F(ConnectionRelayTest, UpdatesOfWindowsPassInOrderAndAlsoWhenNothingFollows) {
  Start();
  const std::string update = Frame(http2::kWindowUpdate, http2::kNone, 1, http2::Number(100, 4));
  const std::string begin = http2::Greeting();
  client_->Send(begin);
  EXPECT_EQ(grpc().Read(begin.size()), begin);
  End client(UniqueFd(::dup(client_->fd())));
  ::fcntl(client.fd(), F_SETFL, O_NONBLOCK);
  for (const std::string& more : {update + update, update + Body(1), Body(1), update, update}) {
    client.Send(more);
    grpc().Send(more);
    EXPECT_EQ(grpc().Read(more.size()), more);
    EXPECT_EQ(client.Read(more.size()), more);
  }
  for (const std::string& part : {update, Body(2), update}) {
    client.Send(part);
    grpc().Send(part);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::shutdown(client.fd(), SHUT_WR);
  const std::string all = update + Body(2) + update;
  EXPECT_EQ(grpc().Read(all.size() + 1), all) << "up to the end of the client's half";
  EXPECT_EQ(client.Read(all.size()), all);
}

TEST_F(ConnectionRelayTest, EachEndMayEndItsHalf) {
  Start();
  ASSERT_TRUE(client_->Send(http2::Greeting()));
  ::shutdown(client_->fd(), SHUT_WR);
  EXPECT_EQ(grpc().Read(1000), http2::Greeting());  // and the end
  EXPECT_EQ(grpc().Send(Body(1)), Body(1).size());
  grpc().Close();
  EXPECT_EQ(client_->ReadToEnd(kLimit), Body(1));
}

TEST_F(ConnectionRelayTest, AClientThatIsLostEndsGrpcsConnection) {
  Start();
  ASSERT_TRUE(client_->Send(http2::Greeting()));
  EXPECT_EQ(grpc().Read(http2::Greeting().size()), http2::Greeting());
  const linger reset{1, 0};
  ::setsockopt(client_->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  client_->Close();
  EXPECT_EQ(grpc().Read(1000), "");
}

TEST_F(ConnectionRelayTest, GrpcDoesNotHearOfStrangersWhoDoNotSpeakHttp2) {
  Start(/*handshake_timeout=*/std::chrono::milliseconds(100));
  EXPECT_EQ(client_->ReadToEnd(kLimit), "");  // silent
  RawConnection slow(fmt::format("127.0.0.1:{}", acceptor_->port()));
  slow.Send(std::string(http2::kPreface));
  EXPECT_EQ(slow.ReadToEnd(kLimit), "");
  RawConnection other(fmt::format("127.0.0.1:{}", acceptor_->port()));
  other.Send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(other.ReadToEnd(kLimit), "");
  EXPECT_EQ(taken(), 0u);
}

TEST_F(ConnectionRelayTest, AFloodEndsAndTheClientAndTheLogHearWhy) {
  CapturedStderr log;
  Start();
  client_->Send(http2::Greeting());
  EXPECT_EQ(grpc().Read(http2::Greeting().size()), http2::Greeting());
  std::string flood;
  for (int i = 0; i < 600; ++i) flood += Frame(http2::kPing, 0, 0, "12345678");
  client_->Send(flood);
  const std::string end = client_->ReadToEnd(kLimit).value_or("no end");
  EXPECT_EQ(http2::ErrorCodeIn(end, http2::kGoAway), http2::kEnhanceYourCalm);
  EXPECT_THAT(end, HasSubstr(std::string(FrameGate::kTooManyFrames)));
  EXPECT_EQ(grpc().Read(1), "");  // none of the piece in which the flood was noticed
  acceptor_->Stop();
  ASSERT_TRUE(FlushLog(kLimit));
  EXPECT_THAT(log.Text(), HasSubstr("ended 1 connections that flooded it, the last one of ipv4:"));
}

TEST_F(ConnectionRelayTest, AStopPassesOnWhatGrpcHasSent) {
  Start();
  ASSERT_TRUE(client_->Send(http2::Greeting()));
  const std::string answer = Body(10);
  EXPECT_EQ(grpc().Send(answer), answer.size());
  grpc().Close();
  acceptor_->Stop();
  EXPECT_EQ(client_->ReadToEnd(kLimit), answer);
}

}  // namespace
}  // namespace baton
