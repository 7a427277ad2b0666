#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/unique_fd.h"
#include "common/log/log.h"
#include "common/rpc/channel.h"
#include "common/rpc/rpc_server.h"
#include "proto/generation.grpc.pb.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/raw_http.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(30);

class ModelsService final : public v1::Generation::Service {
 public:
  grpc::Status ListModels(grpc::ServerContext*,
                          const v1::ListModelsRequest*,
                          v1::ListModelsResponse*) override {
    return grpc::Status::OK;
  }
};

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void Start(int connections, int per_address) {
    ConnectionLimits limits;
    limits.max_connections = connections;
    limits.max_connections_per_address = per_address;
    grpc::Service* const services[] = {&service_};
    auto server = RpcServer::Start("127.0.0.1:0", services, limits);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // The status of a call over a connection of its own.
  grpc::Status Call() {
    const auto stub = v1::Generation::NewStub(MakeChannel(server_->address()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::ListModelsResponse models;
    return stub->ListModels(&context, {}, &models);
  }
  // Repeats Call until it succeeds: the server notices the end of a connection a little later.
  bool ServesAgain() {
    const auto limit = std::chrono::steady_clock::now() + kLimit;
    while (std::chrono::steady_clock::now() < limit) {
      if (Call().ok()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  std::vector<std::unique_ptr<RawConnection>> Connect(int count) {
    std::vector<std::unique_ptr<RawConnection>> connections;
    for (int i = 0; i < count; ++i) {
      connections.push_back(std::make_unique<RawConnection>(server_->address()));
      EXPECT_TRUE(connections.back()->connected());
    }
    return connections;
  }

  ModelsService service_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(ConnectionAcceptorTest, AConnectionOverALimitIsClosedAndTheLogNamesTheLimit) {
  for (const auto& [all, per_address, name] :
       {std::tuple(3, 100, "max_connections"), std::tuple(100, 3, "max_connections_per_address")}) {
    CapturedStderr log;
    Start(all, per_address);
    auto open = Connect(3);
    RawConnection more(server_->address());
    EXPECT_EQ(more.ReadToEnd(kLimit), "");
    EXPECT_EQ(Call().error_code(), grpc::StatusCode::UNAVAILABLE);
    ASSERT_TRUE(FlushLog(kLimit));
    EXPECT_THAT(log.Text(), HasSubstr(std::string("the limit process.grpc_limits.") + name));
    open.pop_back();
    EXPECT_TRUE(ServesAgain());
  }
}

TEST_F(ConnectionAcceptorTest, ConnectionsThatEndAreForgotten) {
  Start(4, 4);
  for (int i = 0; i < 20; ++i) {
    Connect(3);
    ASSERT_TRUE(ServesAgain()) << i;
  }
}

// gRPC's own listener would never accept again. A connection needs several descriptors.
TEST_F(ConnectionAcceptorTest, APortIsServedAgainAfterTheProcessHadTooFewDescriptors) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  for (const size_t left : {0, 1, 2}) {
    SCOPED_TRACE(left);
    CapturedStderr log;
    Start(4096, 4096);
    ASSERT_TRUE(ServesAgain());
    rlimit few = before;
    few.rlim_cur = 256;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::vector<UniqueFd> taken;
    // Twice, because gRPC closes the descriptors of the call above a little later.
    for (int round = 0; round < 2; ++round) {
      if (round > 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      for (UniqueFd one(::dup(0)); one.valid(); one = UniqueFd(::dup(0))) {
        taken.push_back(std::move(one));
      }
    }
    // For the client's end, and what is left.
    for (size_t i = 0; i < 1 + left; ++i) taken.pop_back();
    RawConnection waits(server_->address());
    EXPECT_TRUE(waits.connected());
    EXPECT_FALSE(waits.ReadToEnd(std::chrono::milliseconds(300)).has_value()) << "not refused";
    taken.clear();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(ServesAgain());
    ASSERT_TRUE(FlushLog(kLimit));
    EXPECT_THAT(log.Text(), HasSubstr("no new connection can be accepted: Too many open files"));
  }
}

// What scanners and health checks of TCP do.
TEST_F(ConnectionAcceptorTest, AConnectionThatEndsAtOnceIsNoErrorInTheLog) {
  CapturedStderr log;
  Start(4096, 4096);
  for (int i = 0; i < 50; ++i) {
    RawConnection connection(server_->address());
    const linger reset{1, 0};
    ::setsockopt(connection.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    connection.Close();
  }
  EXPECT_TRUE(ServesAgain());
  ASSERT_TRUE(FlushLog(kLimit));
  EXPECT_THAT(log.Text(), ::testing::Not(HasSubstr("error")));
}

}  // namespace
}  // namespace baton
