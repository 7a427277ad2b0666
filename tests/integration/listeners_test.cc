#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"
#include "tests/integration/router_cluster.h"
#include "tests/support/own_sockets.h"
#include "tests/support/raw_http.h"

// What holds of every port of Baton's processes.
namespace baton {
namespace {

// The TCP ports of a process, by name.
std::map<std::string, std::string> ListenersOf(InProcess& process) {
  std::map<std::string, std::string> listeners = process.service().addresses();
  listeners["http"] = process.http_address();
  return listeners;
}

void ExpectNoDelayOfAccepted(InProcess& process) {
  for (const auto& [name, address] : ListenersOf(process)) {
    SCOPED_TRACE(name + " " + address);
    const RawConnection client(address);
    ASSERT_TRUE(client.connected());
    const int accepted = AwaitAccepted(client.fd());
    ASSERT_GE(accepted, 0) << "not accepted";
    EXPECT_TRUE(HasNoDelay(accepted));
  }
}

TEST(ListenersTest, AcceptedSocketsSendWithoutDelay) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  Cluster cluster(model.path(), 1, 1, {{"transfer.transports=[tcp]"}});
  ExpectNoDelayOfAccepted(cluster.router());
  for (const auto& worker : cluster.workers()) ExpectNoDelayOfAccepted(*worker);
}

TEST(ListenersTest, BothEndsOfEveryConnectionBetweenProcessesSendWithoutDelay) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  Cluster cluster(model.path(), 1, 1, {{"transfer.transports=[tcp]"}});
  const Answer answer = cluster.Ask(MakeRequest(2));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.timings.transport(), "tcp");
  const std::vector<OwnSocket> sockets = OwnSockets();
  // Both ends of a client, of two workers, of the KV control stream and of the KV data.
  EXPECT_GE(sockets.size(), 10u);
  for (const OwnSocket& socket : sockets) {
    EXPECT_TRUE(HasNoDelay(socket.fd)) << socket.local_port << " to " << socket.peer_port;
  }
}

}  // namespace
}  // namespace baton
