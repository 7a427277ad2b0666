#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log/log.h"
#include "common/rpc/channel.h"
#include "common/rpc/duplex_stream.h"
#include "common/rpc/rpc_server.h"
#include "common/security/cluster_proofs.h"
#include "proto/worker.grpc.pb.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/received.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using worker::v1::ToRouter;
using worker::v1::ToWorker;
using Client = ClientStream<ToRouter, ToWorker>;
using Server = ServerStream<ToWorker, ToRouter>;

constexpr Duration kLong = std::chrono::seconds(30);
const std::string kSecret = "the-secret-of-this-test-cluster-1";
const std::string kOther = "the-secret-of-another-cluster-222";

// What one end received, and how its stream ended.
template <class In>
struct Record {
  Received<In> messages;
  Received<Status> ended;

  StreamHandler<In> Handler() {
    return {[this](In message) {
              messages.Post(std::move(message));
              return OkStatus();
            },
            [this](const Status& status) { ended.Post(status); }};
  }
};

class Hub final : public worker::v1::WorkerLink::CallbackService {
 public:
  Hub(std::shared_ptr<const PeerProofs> proofs, Duration proof_limit)
      : proofs_(std::move(proofs)), proof_limit_(proof_limit) {}

  grpc::ServerBidiReactor<ToRouter, ToWorker>* Open(grpc::CallbackServerContext* context) override {
    const auto stream = Server::Accept(context, record.Handler(), 100, proofs_, proof_limit_);
    ToWorker welcome;
    welcome.mutable_welcome()->set_router_id("only for members");
    stream->Send(welcome);
    return stream.get();
  }

  Record<ToRouter> record;

 private:
  const std::shared_ptr<const PeerProofs> proofs_;
  const Duration proof_limit_;
};

class StreamProofTest : public ::testing::Test {
 protected:
  void TearDown() override {
    if (client_ != nullptr) {
      client_->Close(OkStatus());
      EXPECT_TRUE(client_->AwaitClosed(kLong));
    }
    if (server_ != nullptr) server_->Shutdown(Duration::zero());
  }

  // Empty: the process has no secret.
  std::shared_ptr<const PeerProofs> Proofs(const std::string& secret) {
    if (secret.empty()) return nullptr;
    return std::make_shared<ClusterProofs>(ClusterSecret::Parse(secret).value(), refusals_);
  }
  void Connect(const std::string& listens,
               const std::string& dials,
               Duration proof_limit = Server::kProofLimit) {
    hub_ = std::make_unique<Hub>(Proofs(listens), proof_limit);
    grpc::Service* services[] = {hub_.get()};
    server_ = RpcServer::Start("127.0.0.1:0", services).value();
    std::shared_ptr<worker::v1::WorkerLink::Stub> stub =
        worker::v1::WorkerLink::NewStub(MakeChannel(server_->address()));
    client_ = Client::Create(
        [stub](grpc::ClientContext* context, grpc::ClientBidiReactor<ToRouter, ToWorker>* reactor) {
          stub->async()->Open(context, reactor);
        },
        record_.Handler(),
        100,
        Proofs(dials));
    Client::Dial(client_);
  }
  static ToRouter Join() {
    ToRouter message;
    message.mutable_join()->set_worker_id("w");
    return message;
  }
  // Connects, and expects that neither end takes a message of the other. The dialler's error.
  std::string RefusalOf(const std::string& listens, const std::string& dials) {
    Connect(listens, dials);
    client_->Send(Join());
    const Status ended = record_.ended.Take(kLong).value_or(OkStatus());
    EXPECT_TRUE(hub_->record.ended.Take(kLong).has_value());
    EXPECT_EQ(ended.code(), StatusCode::kUnauthenticated) << ended;
    EXPECT_EQ(hub_->record.messages.size(), 0u);
    EXPECT_EQ(record_.messages.size(), 0u);
    return std::string(Message(ended));
  }

  MetricsRegistry metrics_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>(metrics_);
  std::unique_ptr<Hub> hub_;
  std::unique_ptr<RpcServer> server_;
  Record<ToWorker> record_;
  std::shared_ptr<Client> client_;
};

TEST_F(StreamProofTest, MembersExchangeMessagesAfterTheProof) {
  Connect(kSecret, kSecret);
  ASSERT_TRUE(client_->Send(Join()));
  const auto join = hub_->record.messages.Take(kLong);
  ASSERT_TRUE(join.has_value());
  EXPECT_EQ(join->join().worker_id(), "w");
  const auto welcome = record_.messages.Take(kLong);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->welcome().router_id(), "only for members");
}

TEST_F(StreamProofTest, AFlushDeliversWhatWaitedForTheProof) {
  Connect(kSecret, kSecret);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client_->Send(Join()));
  client_->Flush();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(hub_->record.messages.Take(kLong).has_value());
}

TEST_F(StreamProofTest, AnotherSecretIsRefusedCountedAndLogged) {
  CapturedStderr log;
  EXPECT_THAT(RefusalOf(kSecret, kOther), HasSubstr("security.cluster_secret_file"));
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("baton_security_refused_total{port=\"ToRouter\"} 1"));
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  EXPECT_THAT(log.Text(), HasSubstr("ToRouter: refused ipv4:127.0.0.1"));
}

TEST_F(StreamProofTest, AWorkerWithoutASecretIsRefused) {
  EXPECT_THAT(RefusalOf(kSecret, ""), HasSubstr("set security.cluster_secret_file"));
}

TEST_F(StreamProofTest, AWorkerWithASecretDoesNotJoinARouterWithoutOne) {
  EXPECT_THAT(RefusalOf("", kSecret), HasSubstr("set security.cluster_secret_file"));
}

TEST_F(StreamProofTest, ASilentPeerIsRefusedAfterTheLimit) {
  Connect(kSecret, "", std::chrono::milliseconds(50));
  const Status ended = record_.ended.Take(kLong).value_or(OkStatus());
  EXPECT_EQ(ended.code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(std::string(Message(ended)), HasSubstr("within 0.05 s"));
}

}  // namespace
}  // namespace baton
