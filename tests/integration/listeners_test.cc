#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/byte_model.h"
#include "tests/integration/router_cluster.h"
#include "tests/support/own_sockets.h"
#include "tests/support/raw_http.h"

// Properties that every port of Baton's processes must have.
namespace baton {
namespace {

// The TCP ports of a process, by name.
std::map<std::string, std::string> ListenersOf(InProcess& process) {
  std::map<std::string, std::string> listeners = process.service().addresses();
  listeners["http"] = process.http();
  return listeners;
}

void ExpectNoDelayOfAccepted(InProcess& process) {
  for (const auto& [name, address] : ListenersOf(process)) {
    SCOPED_TRACE(name + " " + address);
    const RawConnection client(address);
    ASSERT_TRUE(client.connected());
    const int accepted = AwaitAccepted(client.fd());
    ASSERT_GE(accepted, 0) << "the listener accepted no connection";
    EXPECT_TRUE(AwaitNoDelay(accepted));
  }
}

TEST(ListenersTest, AcceptedSocketsSendWithoutDelay) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  Cluster cluster(model.path(), 1, 1, {{"transfer.transports=[tcp]"}});
  ExpectNoDelayOfAccepted(cluster.router());
  for (const auto& worker : cluster.workers()) ExpectNoDelayOfAccepted(*worker);
}

// The maximum number of concurrent streams on a connection that a gRPC server announces in its
// first SETTINGS frame (RFC 9113, sections 4.1 and 6.5); 0: no limit.
uint32_t AnnouncedStreams(const std::string& address) {
  constexpr size_t kFrameHead = 9;
  constexpr size_t kSettingBytes = 6;
  constexpr uint32_t kMaxConcurrentStreams = 3;
  RawConnection client(address);
  // Sends the client's preface with an empty SETTINGS frame, then reads everything up to the
  // acknowledgement of a SETTINGS frame, which has no payload.
  const std::string empty_settings("\0\0\0\4\0\0\0\0\0", kFrameHead);
  EXPECT_TRUE(client.Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + empty_settings));
  const std::string acknowledged("\0\0\0\4\1\0\0\0\0", kFrameHead);
  const std::string bytes = client.ReadUntil(acknowledged);
  const auto number = [&](size_t at, size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | static_cast<uint8_t>(bytes.at(at + i));
    return value;
  };
  EXPECT_GE(bytes.size(), kFrameHead);
  EXPECT_EQ(bytes.size() < kFrameHead ? 0 : bytes[3], 4) << "the first frame is not SETTINGS";
  for (size_t at = kFrameHead; at < kFrameHead + number(0, 3); at += kSettingBytes) {
    if (number(at, 2) == kMaxConcurrentStreams) return number(at + 2, 4);
  }
  return 0;
}

TEST(ListenersTest, EveryGrpcPortBoundsTheStreamsOfAConnection) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  Cluster cluster(model.path(), 1, 1, {.workers = {}, .router = {"max_streams_per_connection=7"}});
  EXPECT_EQ(AnnouncedStreams(cluster.router().address("grpc")), 7u);
  EXPECT_EQ(AnnouncedStreams(cluster.router().address("workers")), 128u);
  EXPECT_EQ(AnnouncedStreams(cluster.router().address("admin")), 128u);
  for (const auto& worker : cluster.workers()) {
    for (const auto& [name, address] : worker->service().addresses()) {
      EXPECT_EQ(AnnouncedStreams(address), 128u) << name << " " << address;
    }
  }
}

TEST(ListenersTest, BothEndsOfEveryConnectionBetweenProcessesSendWithoutDelay) {
  const ByteModel model = ByteModel::From(std::string(BATON_TEST_DATA) + "/tiny/llama_gqa");
  Cluster cluster(model.path(), 1, 1, {{"transfer.transports=[tcp]"}});
  const Answer answer = cluster.Ask(MakeRequest(2));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.timings.transport(), "tcp");
  const std::vector<OwnSocket> sockets = OwnSockets();
  // Two sockets for each connection: the client, two workers, the KV control stream, the KV data.
  EXPECT_GE(sockets.size(), 10u);
  for (const OwnSocket& socket : sockets) {
    EXPECT_TRUE(AwaitNoDelay(socket.fd)) << socket.local_port << " to " << socket.peer_port;
  }
}

}  // namespace
}  // namespace baton
