#include <cstring>
#include <thread>

#include "tests/fault/fault_cluster.h"
#include "tests/support/tcp_proxy.h"

namespace baton {
namespace {

constexpr const char* kEveryWorker[] = {"prefill-0", "decode-0"};

// Connections between one prefill worker, one decode worker and their router break or stop passing
// bytes.
class LinkFaultTest : public FaultTest {
 protected:
  void SetUp() override { Undisturbed(); }

  // Starts one prefill and one decode worker. Connections to the decode worker's hand-off port
  // (control streams, and blocks with `transport` "tcp") pass kv_link_. The connection from the
  // decode worker to its router passes router_link_.
  void StartThroughProxies(const std::string& transport) {
    StartCluster(0, 0);
    router_link_.Forward(cluster().router().addresses.at("workers"));
    // The worker needs the proxy's address at its start, and the proxy needs the worker's address.
    // So both use the same port on two loopback addresses.
    const std::string kv_listen = "127.0.0.2" + kv_link_.address().substr(strlen("127.0.0.1"));
    kv_link_.Forward(kv_listen);
    const std::string require = "transfer.require_transport=" + transport;
    AddWorker("decode",
              "decode-0",
              {require,
               QuotedOverride("kv_listen", kv_listen),
               QuotedOverride("kv_advertise", kv_link_.address()),
               fmt::format("routers=[\"{}\"]", router_link_.address())});
    AddWorker("prefill", "prefill-0", {require});
    ASSERT_TRUE(cluster().WaitJoined(2, kAnswerLimit).ok());
  }

  TcpProxy& kv_link() { return kv_link_; }
  TcpProxy& router_link() { return router_link_; }

 private:
  TcpProxy kv_link_;
  TcpProxy router_link_;
};

TEST_F(LinkFaultTest, ControlStreamCutFortyTimes) {
  StartThroughProxies("shm");
  int cut = 0;
  ExpectEqual(RunAll([&] {
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      cut += kv_link().Cut();
    }
  }));
  EXPECT_GT(cut, 0) << "no connection was cut";
  ExpectDisturbed();
  ExpectNoLeaks({std::begin(kEveryWorker), std::end(kEveryWorker)});
}

TEST_F(LinkFaultTest, BlocksAndControlStreamCutOverTcp) {
  StartThroughProxies("tcp");
  int cut = 0;
  ExpectEqual(RunAll([&] {
    for (int i = 0; i < 10; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      cut += kv_link().Cut();
    }
  }));
  EXPECT_GT(cut, 0) << "no connection was cut";
  ExpectDisturbed();
  ExpectNoLeaks({std::begin(kEveryWorker), std::end(kEveryWorker)});
}

// The link is frozen for longer than transfer.progress_timeout_seconds + drain_timeout_seconds.
TEST_F(LinkFaultTest, HandoffLinkFrozenBeyondItsTimeouts) {
  StartThroughProxies("tcp");
  ExpectEqual(RunAll([&] {
    WaitBusy({"prefill-0"});
    kv_link().Freeze();
    std::this_thread::sleep_for(std::chrono::seconds(9));
    kv_link().Thaw();
  }));
  ExpectDisturbed();
  ExpectNoLeaks({std::begin(kEveryWorker), std::end(kEveryWorker)});
}

// The link is frozen for longer than lost_ms: the router declares the worker lost, and accepts it
// again later.
TEST_F(LinkFaultTest, WorkerLinkFrozenUntilTheWorkerIsLost) {
  StartThroughProxies("shm");
  ExpectEqual(RunAll([&] {
    WaitBusy({"decode-0"});
    router_link().Freeze();
    std::this_thread::sleep_for(std::chrono::seconds(5));
    router_link().Thaw();
  }));
  ExpectDisturbed();
  ExpectNoLeaks({std::begin(kEveryWorker), std::end(kEveryWorker)});
}

TEST_F(LinkFaultTest, WorkerLinkCutWhileRequestsRun) {
  StartThroughProxies("shm");
  int cut = 0;
  ExpectEqual(RunAll([&] {
    for (int i = 0; i < 5; ++i) {
      WaitBusy({"decode-0"});
      cut += router_link().Cut();
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }));
  EXPECT_GT(cut, 0) << "no connection was cut";
  ExpectDisturbed();
  ExpectNoLeaks({std::begin(kEveryWorker), std::end(kEveryWorker)});
}

}  // namespace
}  // namespace baton
