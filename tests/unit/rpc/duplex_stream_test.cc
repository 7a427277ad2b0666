#include "common/rpc/duplex_stream.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/rpc/channel.h"
#include "common/rpc/closing_streams.h"
#include "common/rpc/rpc_server.h"
#include "proto/worker.grpc.pb.h"
#include "tests/support/received.h"

namespace baton {
namespace {

using worker::v1::ToRouter;
using worker::v1::ToWorker;
using Client = ClientStream<ToRouter, ToWorker>;
using Server = ServerStream<ToWorker, ToRouter>;

constexpr Duration kLong = std::chrono::seconds(30);

// The messages that one end received, and the status with which its stream ended.
template <class In>
struct Record {
  Received<In> messages;
  Received<Status> ended;
  Status verdict;  // the result of on_message

  StreamHandler<In> Handler() {
    return {[this](In message) {
              messages.Post(std::move(message));
              return verdict;
            },
            [this](const Status& status) { ended.Post(status); }};
  }
};

class Hub final : public worker::v1::WorkerLink::CallbackService {
 public:
  grpc::ServerBidiReactor<ToRouter, ToWorker>* Open(grpc::CallbackServerContext* context) override {
    const std::shared_ptr<Server> stream = Server::Accept(context, record.Handler(), 100000);
    streams.Post(stream);
    return stream.get();
  }

  Record<ToRouter> record;
  Received<std::shared_ptr<Server>> streams;
};

class DuplexStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::Service* services[] = {&hub_};
    StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start("127.0.0.1:0", services);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect(server_->address());
    ASSERT_NE(remote_, nullptr);
  }

  void TearDown() override {
    if (client_ != nullptr) {
      client_->Close(OkStatus());
      EXPECT_TRUE(client_->AwaitClosed(kLong));
    }
    server_->Shutdown(Duration::zero());
  }

  void Connect(const std::string& address) {
    std::shared_ptr<worker::v1::WorkerLink::Stub> stub =
        worker::v1::WorkerLink::NewStub(MakeChannel(address));
    client_ = Client::Create(
        [stub](grpc::ClientContext* context, grpc::ClientBidiReactor<ToRouter, ToWorker>* reactor) {
          stub->async()->Open(context, reactor);
        },
        record_.Handler(),
        100000);
    Client::Dial(client_);
    remote_ = hub_.streams.Take(kLong).value_or(nullptr);
  }

  static ToRouter Numbered(uint64_t n) {
    ToRouter message;
    message.mutable_heartbeat()->set_prompt_tokens(static_cast<int64_t>(n));
    return message;
  }

  Hub hub_;
  std::unique_ptr<RpcServer> server_;
  Record<ToWorker> record_;
  std::shared_ptr<Client> client_;
  std::shared_ptr<Server> remote_;
};

TEST_F(DuplexStreamTest, KeepsOrderWithManySenders) {
  constexpr uint64_t kEach = 500;
  {
    std::vector<std::jthread> senders;
    for (uint64_t who = 0; who < 4; ++who) {
      senders.emplace_back([&, who] {
        for (uint64_t i = 0; i < kEach; ++i) EXPECT_TRUE(client_->Send(Numbered(who * 1000 + i)));
      });
    }
  }
  std::vector<uint64_t> next(4, 0);
  for (uint64_t i = 0; i < 4 * kEach; ++i) {
    const std::optional<ToRouter> message = hub_.record.messages.Take(kLong);
    ASSERT_TRUE(message.has_value());
    const auto number = static_cast<uint64_t>(message->heartbeat().prompt_tokens());
    EXPECT_EQ(number % 1000, next[number / 1000]++);
  }
}

TEST_F(DuplexStreamTest, FlushDeliversWhatWasQueuedAndEndsBothSides) {
  for (uint64_t i = 0; i < 1000; ++i) ASSERT_TRUE(client_->Send(Numbered(i)));
  client_->Flush();
  EXPECT_FALSE(client_->Send(Numbered(1000)));
  EXPECT_EQ(hub_.record.ended.Take(kLong), OkStatus());
  EXPECT_EQ(record_.ended.Take(kLong), OkStatus());
  EXPECT_EQ(hub_.record.messages.size(), 1000u);
}

TEST_F(DuplexStreamTest, RefusalReachesTheDialler) {
  remote_->Close(InvalidArgument("model 'x' is not served here"));
  EXPECT_EQ(record_.ended.Take(kLong), InvalidArgument("model 'x' is not served here"));
  EXPECT_TRUE(hub_.record.ended.Take(kLong).has_value());
}

TEST_F(DuplexStreamTest, UnwelcomeMessageClosesWithItsStatus) {
  hub_.record.verdict = InvalidArgument("sequence is 7; it must be 1");
  ASSERT_TRUE(client_->Send(Numbered(7)));
  EXPECT_EQ(record_.ended.Take(kLong), hub_.record.verdict);
}

TEST_F(DuplexStreamTest, FlushOfTheListenerDeliversFirst) {
  for (int i = 0; i < 100; ++i) {
    ToWorker message;
    message.set_send_snapshot(true);
    ASSERT_TRUE(remote_->Send(std::move(message)));
  }
  remote_->Flush(MakeStatus(StatusCode::kUnavailable, "leaving"));
  const std::optional<Status> ended = record_.ended.Take(kLong);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code(), StatusCode::kUnavailable);
  EXPECT_EQ(record_.messages.size(), 100u);
}

TEST_F(DuplexStreamTest, DiallerClosingIsSeenAsAnError) {
  client_->Close(MakeStatus(StatusCode::kCancelled, "enough"));
  EXPECT_EQ(record_.ended.Take(kLong), MakeStatus(StatusCode::kCancelled, "enough"));
  const std::optional<Status> ended = hub_.record.ended.Take(kLong);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code(), StatusCode::kUnavailable);
}

TEST_F(DuplexStreamTest, ServerShutdownEndsTheDialler) {
  server_->Shutdown(Duration::zero());
  const std::optional<Status> ended = record_.ended.Take(kLong);
  ASSERT_TRUE(ended.has_value());
  EXPECT_FALSE(ended->ok());
}

// Otherwise the channel could be destroyed on a thread for which its destructor waits.
TEST_F(DuplexStreamTest, AfterItsEndTheDiallerAloneHoldsTheStream) {
  for (int i = 0; i < 100; ++i) {
    client_->Close(OkStatus());
    ASSERT_TRUE(client_->AwaitClosed(kLong));
    ASSERT_EQ(client_.use_count(), 1);
    ASSERT_TRUE(record_.ended.Take(kLong).has_value());
    Connect(server_->address());
    ASSERT_NE(remote_, nullptr);
  }
}

TEST_F(DuplexStreamTest, FullQueueRefuses) {
  client_->Close(OkStatus());
  ASSERT_TRUE(client_->AwaitClosed(kLong));
  std::shared_ptr<worker::v1::WorkerLink::Stub> stub =
      worker::v1::WorkerLink::NewStub(MakeChannel("127.0.0.1:1"));
  Record<ToWorker> record;
  const std::shared_ptr<Client> stuck = Client::Create(
      [stub](grpc::ClientContext* context, grpc::ClientBidiReactor<ToRouter, ToWorker>* reactor) {
        context->set_wait_for_ready(true);
        stub->async()->Open(context, reactor);
      },
      record.Handler(),
      3);
  Client::Dial(stuck);
  int taken = 0;
  for (int i = 0; i < 10; ++i) taken += stuck->Send(Numbered(i)) ? 1 : 0;
  EXPECT_EQ(taken, 4);  // one is being written, three wait in the queue
  stuck->Close(OkStatus());
  EXPECT_TRUE(stuck->AwaitClosed(kLong));
}

// on_closed is still running on gRPC's thread when the dialler gives the stream up.
TEST_F(DuplexStreamTest, GivenUpStreamsAreKeptUntilTheyHaveEndedWithoutWaiting) {
  Received<bool> closes;
  Received<bool> go_on;
  std::shared_ptr<worker::v1::WorkerLink::Stub> stub =
      worker::v1::WorkerLink::NewStub(MakeChannel(server_->address()));
  std::shared_ptr<Client> slow = Client::Create(
      [stub](grpc::ClientContext* context, grpc::ClientBidiReactor<ToRouter, ToWorker>* reactor) {
        stub->async()->Open(context, reactor);
      },
      {[](const ToWorker&) { return OkStatus(); },
       [&](const Status&) {
         closes.Post(true);
         go_on.Take(kLong);
       }},
      1);
  Client::Dial(slow);
  slow->Close(OkStatus());
  ASSERT_TRUE(closes.Take(kLong).has_value());
  const std::weak_ptr<Client> watched = slow;
  ClosingStreams closing;
  closing.Add("the hub", std::move(slow));
  closing.Collect();
  ASSERT_EQ(closing.size(), 1u) << "Collect waited for the stream, or dropped it too early";
  go_on.Post(true);
  ASSERT_TRUE(watched.lock()->AwaitClosed(kLong));
  closing.Collect();
  EXPECT_EQ(closing.size(), 0u);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace baton
