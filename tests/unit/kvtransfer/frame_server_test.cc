#include "kvtransfer/wire/frame_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/tcp/tcp_socket.h"
#include "tests/conformance/must.h"

namespace baton {
namespace {

// What a connection says of itself, and how often it was served.
struct Script {
  bool is_landing = false;
  bool has_more = false;
  int steps = 0;
};

// Reads nothing, so its socket stays readable.
class ScriptedConnection final : public PeerConnection {
 public:
  ScriptedConnection(UniqueFd socket, Script& script)
      : socket_(std::move(socket)), script_(script) {}

  Status Step(Time, size_t) override {
    ++script_.steps;
    return OkStatus();
  }
  void OnWindowClosed(uint64_t) override {}
  int fd() const override { return socket_.get(); }
  const std::string& peer() const override { return peer_; }
  Time stalled_since() const override { return kNever; }
  bool in_preface() const override { return false; }
  bool wants_write() const override { return false; }
  bool is_landing() const override { return script_.is_landing; }
  bool has_more() const override { return script_.has_more; }

 private:
  const UniqueFd socket_;
  Script& script_;
  const std::string peer_ = "the test";
};

class FrameServerTest : public testing::Test {
 protected:
  FrameServerTest() {
    TcpListener listener = Must(ListenTcp("127.0.0.1:0", TransportOptions()));
    FrameServer::Options options;
    options.max_connections = 1;
    options.stall_timeout = std::chrono::seconds(10);
    options.accept = [this](UniqueFd socket, Time) {
      connection_ = socket.get();
      return std::unique_ptr<PeerConnection>(
          std::make_unique<ScriptedConnection>(std::move(socket), script_));
    };
    server_ =
        std::make_unique<FrameServer>(std::move(listener.socket), epoll_.get(), std::move(options));
    client_ = Must(ConnectTcp(listener.advertised));
    while (server_->connection_count() == 0) server_->Poll(clock_.Now());
    script_.steps = 0;
  }

  void MakeReadable() const { ASSERT_EQ(::send(client_.get(), "x", 1, MSG_NOSIGNAL), 1); }
  int StepsOf(int polls) {
    script_.steps = 0;
    for (int i = 0; i < polls; ++i) server_->Poll(clock_.Now());
    return script_.steps;
  }

  const SteadyClock clock_;
  Script script_;
  int connection_ = -1;  // its socket
  const UniqueFd epoll_ = Must(MakeEpoll());
  std::unique_ptr<FrameServer> server_;
  UniqueFd client_;
};

TEST_F(FrameServerTest, AConnectionWithoutWorkIsNotServed) {
  EXPECT_EQ(StepsOf(10), 0);
}

TEST_F(FrameServerTest, APollServesAConnectionOnceHoweverManyReasonsItHas) {
  script_.is_landing = true;
  script_.has_more = true;
  MakeReadable();
  while (StepsOf(1) == 0) {
  }
  for (int i = 0; i < 3; ++i) server_->Refresh(connection_);
  EXPECT_EQ(StepsOf(100), 100);
}

TEST_F(FrameServerTest, WorkThatIsLeftOverIsServedWithoutTheSocket) {
  script_.has_more = true;
  script_.is_landing = true;
  EXPECT_TRUE(server_->Poll(clock_.Now()));
  script_.is_landing = false;
  EXPECT_EQ(StepsOf(10), 10);
  script_.has_more = false;
  EXPECT_EQ(StepsOf(1), 1);
  EXPECT_FALSE(server_->Poll(clock_.Now()));
  EXPECT_EQ(StepsOf(10), 0);
}

}  // namespace
}  // namespace baton
