#include <future>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/error.hpp>
#include <gmock/gmock.h>

#include "common/http/tls/http_tls.h"
#include "common/security/refusals.h"
#include "tests/support/https_connection.h"
#include "tests/support/test_certificates.h"
#include "tests/unit/http/http_server_fixture.h"

// The bytes of connections with TLS: records, waits for the socket, and ends.
namespace baton {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class TlsStreamTest : public HttpServerTest {
 protected:
  void StartTlsServer(HttpServerOptions options = {}) {
    TestAuthority::Leaf leaf;
    leaf.ip_addresses = {"127.0.0.1"};
    const CertificateFiles files = authority_.Make(leaf);
    auto tls = HttpTls::Open({files.certificate, files.key}, refusals_);
    ASSERT_TRUE(tls.ok()) << tls.status();
    options.streams = *std::move(tls);
    StartServer(options);
  }
  static std::string PostOf(size_t bytes) {
    return fmt::format("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", bytes);
  }
  // Bytes that differ from place to place.
  static std::string Text(size_t bytes) {
    std::string text;
    for (size_t i = 0; text.size() < bytes; ++i) text += fmt::format("{},", i);
    text.resize(bytes);
    return text;
  }

  TestAuthority authority_;
  Refusals refusals_{metrics_};
};

TEST_F(TlsStreamTest, BodiesOfManyRecordsPassBothWays) {
  StartTlsServer();
  HttpsConnection client(address(), authority_.ca_file());
  for (const size_t bytes : {size_t{1}, size_t{16} << 10, size_t{3} << 20}) {
    const std::string body = Text(bytes - 1) + "$";
    // The server can only send all of its answer when the client reads, which happens later.
    client.Send(PostOf(bytes) + body);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_THAT(client.ReadUntil("$"), EndsWith("\r\n\r\n" + body)) << bytes;
  }
}

TEST_F(TlsStreamTest, ManyPartsThatWaitForTheClientArriveInOrder) {
  HttpServerOptions options;
  options.max_unsent_bytes = size_t{64} << 20;
  StartTlsServer(options);
  std::string all;
  server_->AddRoute("GET", "/stream", [&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Begin(200, "text/plain");
    const std::string large = Text(100'000);  // all parts are more than the kernel's buffers hold
    for (size_t i = 0; i < 600; ++i) {
      const std::string part = (i % 3 == 1 ? large : Text(3 * i)) + ";";
      all += part;
      EXPECT_TRUE(exchange->Write(part));
    }
    exchange->Finish("");
  });
  HttpsConnection client(address(), authority_.ca_file());
  client.Send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::string answer = client.ReadUntil("\r\n0\r\n\r\n");
  std::string received;
  for (size_t at = answer.find("\r\n\r\n") + 4; at < answer.size();) {
    const size_t bytes = std::stoul(answer.substr(at, answer.find('\r', at) - at), nullptr, 16);
    if (bytes == 0) break;
    const size_t begin = answer.find('\n', at) + 1;
    received += answer.substr(begin, bytes);
    at = begin + bytes + 2;
  }
  EXPECT_EQ(received.size(), all.size());
  EXPECT_TRUE(received == all);
}

// The answer would be lost if the server closed a connection with unread bytes, or ended at the
// first byte that comes after its own end.
TEST_F(TlsStreamTest, AClientThatIsStillSendingReadsTheRefusal) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  StartTlsServer(options);
  HttpsConnection client(address(), authority_.ca_file());
  client.Send(PostOf(1 << 20));
  for (int i = 0; i < 16; ++i) {
    client.Send(Text(60'000));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(client.error()) << client.error().message();
  EXPECT_THAT(client.ReadUntil("no such text"), HasSubstr("HTTP/1.1 413"));
  EXPECT_EQ(client.error(), boost::asio::error::eof) << client.error().message();
}

TEST_F(TlsStreamTest, AClientThatLeavesWithoutAnEndIsNoticed) {
  StartTlsServer();
  std::promise<void> gone;
  std::promise<std::shared_ptr<HttpExchange>> taken;
  server_->AddRoute("GET", "/stream", [&](std::shared_ptr<HttpExchange> exchange) {
    exchange->OnDisconnect([&] { gone.set_value(); });
    exchange->Begin(200, "text/plain");
    taken.set_value(std::move(exchange));
  });
  std::shared_ptr<HttpExchange> exchange;
  {
    HttpsConnection client(address(), authority_.ca_file());
    client.Send("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n");
    exchange = taken.get_future().get();
  }
  ASSERT_EQ(gone.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_FALSE(exchange->Write("late"));
}

}  // namespace
}  // namespace baton
