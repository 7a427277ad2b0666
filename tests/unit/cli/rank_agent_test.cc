#include "cli/rank_agent.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/unique_fd.h"
#include "common/metrics/metrics.h"
#include "common/security/cluster_proofs.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr Duration kLimit = std::chrono::seconds(20);

// An agent on a free port, and the two ends' proofs.
class RankAgentTest : public testing::Test {
 protected:
  RankAgentTest() {
    std::promise<std::string> ready;
    agent_ = std::thread([this, &ready] {
      const Status served = ServeRanks(
          "127.0.0.1:0",
          proofs_,
          [&](const std::string& address) { ready.set_value(address); },
          [this] { return stopped_.load(); });
      EXPECT_TRUE(served.ok()) << served;
    });
    address_ = ready.get_future().get();
  }
  ~RankAgentTest() override {
    stopped_ = true;
    agent_.join();
  }

  StatusOr<int> Run(const std::vector<std::string>& command) {
    return RunOnHost(address_, proofs_, command, kLimit);
  }

  MetricsRegistry metrics_;
  const ClusterSecret secret_ = *ClusterSecret::Parse(ClusterSecret::Generate());
  const ClusterProofs proofs_{secret_, std::make_shared<Refusals>(metrics_)};
  std::atomic<bool> stopped_ = false;
  std::string address_;
  std::thread agent_;
};

TEST_F(RankAgentTest, RunsTheDaemonAndTellsItsStatus) {
  // The words as mpirun gives them.
  const auto help = Run({" orted", "--help"});
  ASSERT_TRUE(help.ok()) << help.status();
  EXPECT_EQ(*help, 1);
  const auto failed = Run({"orted", "--no-such-option"});
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(*failed, 213);  // the daemon's status for wrong usage
}

TEST_F(RankAgentTest, RunsNothingElse) {
  for (const char* program : {"/bin/true", "sh", "", "orted/../sh"}) {
    const auto refused = Run({program, "-c", "true"});
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << program;
    EXPECT_THAT(std::string(Message(refused.status())), HasSubstr("an agent runs nothing else"));
  }
  EXPECT_TRUE(Run({"orted", "--help"}).ok());
}

TEST_F(RankAgentTest, AnotherSecretIsRefused) {
  const ClusterProofs others(*ClusterSecret::Parse(ClusterSecret::Generate()),
                             std::make_shared<Refusals>(metrics_));
  const auto refused = RunOnHost(address_, others, {"orted", "--help"}, kLimit);
  EXPECT_FALSE(refused.ok());
  EXPECT_TRUE(Run({"orted", "--help"}).ok());
}

// Bytes of a handshake's length that prove nothing, then a command.
TEST_F(RankAgentTest, AStrangerIsNotServed) {
  const auto port = static_cast<uint16_t>(std::stoi(address_.substr(address_.rfind(':') + 1)));
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const std::string command = R"({"command":["orted","--help"]})";
  const std::string bytes =
      std::string(kPeerProofBytes, 'x') + fmt::format("{:08x}{}", command.size(), command);
  ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  std::string answer;
  std::array<char, 256> part{};
  for (ssize_t got = 0; (got = ::recv(socket.get(), part.data(), part.size(), 0)) > 0;) {
    answer.append(part.data(), static_cast<size_t>(got));
  }
  EXPECT_EQ(answer, "");
}

TEST(RunOnHostTest, AnAgentThatNeverComesIsNamed) {
  MetricsRegistry metrics;
  const ClusterProofs proofs(*ClusterSecret::Parse(ClusterSecret::Generate()),
                             std::make_shared<Refusals>(metrics));
  const auto late = RunOnHost("127.0.0.1:1", proofs, {"orted"}, std::chrono::milliseconds(200));
  EXPECT_EQ(late.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(Message(late.status())), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace baton
