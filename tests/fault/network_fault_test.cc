#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/e2e/two_hosts.h"
#include "tests/fault/fault_cluster.h"

// The network between two hosts fails while requests run. tests/e2e/two_hosts.sh makes the hosts of
// network namespaces and runs this program on the first one, which has the router and the decode
// worker. The prefill worker is on the second host: its stream to the router, its control stream
// and its blocks all take the network.
namespace baton {
namespace {

class NetworkFaultTest : public FaultTest {
 protected:
  void SetUp() override {
    Undisturbed();
    const std::string first = TwoHostsVariable("BATON_FIRST_HOST");
    StartCluster(0, 0, {}, {QuotedOverride("worker_listen", first + ":0")});
    AddWorker("decode",
              "decode-0",
              {QuotedOverride("kv_listen", first + ":0"), "transfer.require_transport=tcp"});
    StartPrefillOnSecondHost();
    const Status joined = cluster().WaitJoined(2, kStartLimit);
    ASSERT_TRUE(joined.ok()) << joined;
  }

  // Takes the first host's device down for `time`, and up again.
  static void TakeDown(Duration time) {
    ASSERT_EQ(std::system("ip link set first down"), 0);
    std::this_thread::sleep_for(time);
    ASSERT_EQ(std::system("ip link set first up"), 0);
  }

 private:
  void StartPrefillOnSecondHost() {
    std::vector<std::string> command = {"/usr/bin/nsenter",
                                        "--target",
                                        TwoHostsVariable("BATON_SECOND_HOST_PROCESS"),
                                        "--net",
                                        BATON_BINARY_FOLDER "/baton-prefill"};
    for (const std::string& setting :
         {QuotedOverride("worker_id", "prefill-0"),
          QuotedOverride("model.path", Model()),
          QuotedOverride("security.cluster_secret_file", cluster().secret_file()),
          QuotedOverride("process.http_listen", TwoHostsVariable("BATON_SECOND_HOST") + ":0"),
          fmt::format("routers=[\"{}\"]", cluster().router().addresses.at("workers")),
          std::string("security.open_pages=true"),  // its metrics are read from the first host
          std::string("transfer.require_transport=tcp"),
          std::string("engine.kv_memory_mib=128"),
          std::string("engine.threads=1")}) {
      command.insert(command.end(), {"--set", setting});
    }
    auto process = ChildProcess::Start({std::move(command), log_folder() + "/prefill-0.log"});
    ASSERT_TRUE(process.ok()) << process.status();
    auto addresses = (*process)->WaitReady(kStartLimit);
    ASSERT_TRUE(addresses.ok()) << addresses.status() << LogOf("prefill-0");
    cluster().members().push_back({"prefill-0", *std::move(addresses), *std::move(process)});
  }
};

// Shorter than the time-outs of a hand-off: TCP repeats what was lost.
TEST_F(NetworkFaultTest, ANetworkThatIsDownForAMoment) {
  ExpectEqual(RunAll([&] {
    WaitBusy({"prefill-0"});
    for (int i = 0; i < 4; ++i) {
      TakeDown(std::chrono::milliseconds(700));
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }));
  ExpectNoLeaks({"prefill-0", "decode-0"});
}

// Longer than lost_ms and than progress_timeout_seconds + drain_timeout_seconds. Afterwards the
// workers hand off again.
TEST_F(NetworkFaultTest, ANetworkThatIsDownBeyondAllTimeouts) {
  ExpectEqual(RunAll([&] {
    WaitBusy({"prefill-0"});
    TakeDown(std::chrono::seconds(12));
  }));
  ExpectDisturbed();
  std::string transport;
  for (int i = 0; i < 30 && transport.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    GenerateCall call = CallOf(0);
    call.text = LongPromptOf(1000 + i);  // cached nowhere
    transport = Ask(call).transport;
  }
  EXPECT_EQ(transport, "tcp");
  ExpectNoLeaks({"prefill-0", "decode-0"});
}

}  // namespace
}  // namespace baton
