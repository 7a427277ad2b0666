#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log/log.h"
#include "kvtransfer/data_plane/make_transport.h"
#include "kvtransfer/tcp/tcp_address.h"
#include "kvtransfer/tcp/tcp_transport.h"
#include "kvtransfer/wire/frame.h"
#include "tests/conformance/host_buffer.h"
#include "tests/conformance/transport_conformance.h"
#include "tests/support/captured_stderr.h"
#include "tests/unit/security/test_proofs.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

const std::string kOther = "the-secret-of-another-cluster-222";

TransportUnderTest ProvenTcp(const std::string& name, bool authenticates) {
  return {name,
          [=] {
            static MetricsRegistry metrics;
            static const auto refusals = std::make_shared<Refusals>(metrics);
            KvTransferOptions options;
            options.transport.listen_address = "127.0.0.1:0";
            options.transport.proofs = ProofsOf(kSecret, refusals);
            options.transport.authenticate_frames = authenticates;
            return *MakeTransport("tcp", options);
          },
          HostDevice};
}

INSTANTIATE_TEST_SUITE_P(Proven,
                         TransportConformance,
                         testing::Values(ProvenTcp("tcp_proven", false),
                                         ProvenTcp("tcp_authenticated", true)),
                         [](const auto& param) { return param.param.name; });

// A tcp endpoint that has the cluster's secret, and peers that have not.
class KvDataProofTest : public testing::Test {
 protected:
  std::unique_ptr<Transport> Make(const std::string& secret) {
    TransportOptions options;
    options.listen_address = "127.0.0.1:0";
    options.connect_timeout = std::chrono::seconds(1);
    options.proofs = ProofsOf(secret, refusals_);
    return *TcpTransport::Create(options, nullptr, [this](std::string_view line) { log_ += line; });
  }
  void SetUp() override {
    receiver_ = Make(kSecret);
    region_ = *receiver_->Register(arena_);
    descriptor_ = *receiver_->Listen();
    ASSERT_TRUE(receiver_->OpenWindow({1, region_->id(), {{0, 4096}}}).ok());
  }
  void TearDown() override {
    receiver_->CloseWindow(1);
    region_.reset();
  }
  // A write of a sender with this secret; how it ended.
  WriteEvent WriteFrom(const std::string& secret) {
    const auto sender = Make(secret);
    const HostBuffer source(4096);
    const auto from = *sender->Register(source);
    auto channel = *sender->Connect(*from, descriptor_, region_->id());
    const WriteRun run{0, 0, 4096};
    WriteOp op;
    op.window_key = 1;
    op.runs = {&run, 1};
    EXPECT_TRUE(channel->PostWrite(op).ok());
    std::array<Arrival, 4> arrivals;
    std::array<WriteEvent, 4> events;
    const SteadyClock clock;
    const Time limit = clock.Now() + std::chrono::seconds(20);
    while (clock.Now() < limit) {
      arrived_ += receiver_->Poll(clock.Now(), arrivals);
      if (channel->Poll(clock.Now(), events) > 0) return events[0];
    }
    ADD_FAILURE() << "the write did not end";
    return {};
  }
  // Sends `bytes`; true when the endpoint closes the connection.
  bool Closes(const std::string& bytes) {
    const TcpAddress address = *ParseTcpAddress(descriptor_.substr(2));
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(
        ::connect(
            socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length),
        0);
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    std::array<Arrival, 4> arrivals;
    const SteadyClock clock;
    const Time limit = clock.Now() + std::chrono::seconds(5);
    while (clock.Now() < limit) {
      arrived_ += receiver_->Poll(clock.Now(), arrivals);
      char byte = 0;
      if (::recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0) return true;
      if (errno == ECONNRESET) return true;
    }
    return false;
  }

  MetricsRegistry metrics_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>(metrics_);
  std::string log_;
  const HostBuffer arena_{4096};
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Region> region_;
  std::string descriptor_;
  size_t arrived_ = 0;
};

TEST_F(KvDataProofTest, AMemberWrites) {
  EXPECT_EQ(WriteFrom(kSecret).kind, WriteEvent::Kind::kDone);
  EXPECT_EQ(arrived_, 1u);
}

TEST_F(KvDataProofTest, StrangersWriteNothing) {
  for (const std::string& secret : {kOther, std::string()}) {
    const WriteEvent event = WriteFrom(secret);
    EXPECT_EQ(event.kind, WriteEvent::Kind::kFailed) << secret;
  }
  EXPECT_EQ(arrived_, 0u);
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("baton_security_refused_total{port=\"KvData\"} 2"));
}

TEST_F(KvDataProofTest, GarbageIsRefusedCountedAndLoggedOnce) {
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));  // of the tests before
  CapturedStderr log;
  const Preface preface;
  const std::string valid(reinterpret_cast<const char*>(&preface), sizeof(preface));
  for (const std::string& garbage : {std::string("GET / HTTP/1.1\r\n\r\n"),
                                     std::string("x"),
                                     std::string(1000, '\0'),
                                     valid,
                                     std::string("BHS1") + std::string(36, 'z')}) {
    EXPECT_TRUE(Closes(garbage)) << garbage;
  }
  EXPECT_THAT(metrics_.Serialize(), HasSubstr("baton_security_refused_total{port=\"KvData\"} 5"));
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  const std::string text = log.Text();
  const size_t first = text.find("did not prove");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("did not prove", first + 1), std::string::npos) << text;
  EXPECT_EQ(arrived_, 0u);
}

TEST_F(KvDataProofTest, AReceiverWithoutTheSecretSaysSo) {
  receiver_->CloseWindow(1);
  region_.reset();
  receiver_ = Make("");
  region_ = *receiver_->Register(arena_);
  descriptor_ = *receiver_->Listen();
  EXPECT_EQ(WriteFrom(kSecret).kind, WriteEvent::Kind::kFailed);
  EXPECT_THAT(log_, HasSubstr("security.cluster_secret_file"));
}

}  // namespace
}  // namespace baton
