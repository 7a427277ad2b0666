#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/host_cluster.h"
#include "tests/e2e/two_hosts.h"

// A worker whose ranks are on two hosts with an address each. two_hosts.sh makes them of network
// namespaces, and the agent of `baton host` starts the ranks on the second one.
namespace baton {
namespace {

class HostNetworkTest : public HostClusterTest {
 protected:
  HostNetworkTest()
      : network_(TwoHostsVariable("BATON_HOST_NETWORK")),
        first_(TwoHostsVariable("BATON_FIRST_HOST")),
        second_(TwoHostsVariable("BATON_SECOND_HOST")),
        process_(TwoHostsVariable("BATON_SECOND_HOST_PROCESS")),
        folder_(TwoHostsVariable("BATON_SECOND_HOST_FOLDER")) {}

  ~HostNetworkTest() override {
    if (agent_) agent_->Signal(SIGTERM);
  }

  // The ranks of the first host also listen at its address.
  void StartOnFirstHost() { StartCluster(1, 1, {"kv_listen=" + first_ + ":0", kTransport}); }

  // Starts the agent of the second host.
  void StartAgent() {
    auto agent = ChildProcess::Start({{"/usr/bin/env",
                                       "TMPDIR=" + folder_,
                                       "nsenter",
                                       "--target",
                                       process_,
                                       "--net",
                                       "--uts",
                                       BATON_BINARY_FOLDER "/baton",
                                       "host",
                                       "serve",
                                       "--listen",
                                       second_ + ":7092",
                                       "--secret-file",
                                       cluster().secret_file()},
                                      ""});
    ASSERT_TRUE(agent.ok()) << agent.status();
    agent_ = *std::move(agent);
  }

  void AddGroupOfBothHosts(
      const std::string& program, int on_first, int on_second, int tensor, int pipeline) {
    StartAgent();
    AddGroup({.ranks = on_first + on_second,
              .hosts = fmt::format("{}:{},{}:{}", first_, on_first, second_, on_second),
              .program = program,
              .network = network_,
              .agent = fmt::format("{}/baton host run --wait-seconds 30 --secret-file {}",
                                   BATON_BINARY_FOLDER,
                                   cluster().secret_file())},
             tensor,
             pipeline,
             3,
             {"kv_listen=0.0.0.0:0", "kv_advertise=" + first_});
  }

  static constexpr const char* kTransport = "transfer.require_transport=tcp";

 private:
  const std::string network_;  // the addresses of both hosts, as a prefix
  const std::string first_;    // the address of the host of the test itself
  const std::string second_;
  const std::string process_;  // a process of the second host
  const std::string folder_;   // for the temporary files of the second host
  std::unique_ptr<ChildProcess> agent_;
};

TEST_F(HostNetworkTest, KvReachesTheRanksOfADecodeWorkerAtTheirOwnAddresses) {
  StartOnFirstHost();
  const auto expected = Answers();
  ASSERT_NO_FATAL_FAILURE(AddGroupOfBothHosts("baton-decode", 2, 1, 3, 1));
  ExpectGroupDecodes(expected);
}

TEST_F(HostNetworkTest, TheStagesOfAPrefillWorkerSendKvFromTheirOwnAddresses) {
  StartOnFirstHost();
  const auto expected = Answers();
  // Without the prompts in the prefix cache of decode-0.
  StartOnFirstHost();
  ASSERT_NO_FATAL_FAILURE(AddGroupOfBothHosts("baton-prefill", 1, 1, 1, 2));
  ExpectGroupPrefills(expected);
}

}  // namespace
}  // namespace baton
