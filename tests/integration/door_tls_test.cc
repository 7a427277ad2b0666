#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/error.hpp>
#include <gmock/gmock.h>

#include "cli/generation_client.h"
#include "tests/integration/router_service.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/http2_frames.h"
#include "tests/support/https_connection.h"
#include "tests/support/raw_http.h"
#include "tests/support/test_certificates.h"

// A router's ports with TLS, and clients with right and wrong ideas of it.
namespace baton {
namespace {

namespace asio = boost::asio;
using ::testing::HasSubstr;

class AuthorityFixture {
 protected:
  TestAuthority::Leaf ServerLeaf() const {
    TestAuthority::Leaf leaf;
    leaf.file = "server";
    leaf.dns_names = {"localhost"};
    leaf.ip_addresses = {"127.0.0.1"};
    return leaf;
  }
  std::vector<std::string> Settings() {
    const CertificateFiles server = authority_.Make(ServerLeaf());
    TestAuthority::Leaf member;
    member.file = "member";
    member.dns_names = {"baton"};
    member_ = authority_.Make(member);
    return {"security.tls.certificate_file=" + server.certificate,
            "security.tls.key_file=" + server.key,
            "security.cluster_tls.certificate_file=" + member_.certificate,
            "security.cluster_tls.key_file=" + member_.key,
            "security.cluster_tls.ca_file=" + authority_.ca_file(),
            "security.cluster_tls.crl_folder=" + authority_.crl_folder()};
  }

  TestAuthority authority_;
  CertificateFiles member_;
};

class DoorTlsTest : public AuthorityFixture, public RouterServiceTest {
 protected:
  DoorTlsTest() : RouterServiceTest(Settings()) {}

  std::string GrpcAddress() { return router_->address("grpc"); }
  StatusOr<std::string> ModelName(const std::string& address, const std::string& ca_file) {
    RouterEndpoint endpoint(address);
    endpoint.tls = true;
    endpoint.ca_file = ca_file;
    return GenerationClient(endpoint).ModelName();
  }
  // A call of the port for workers, by a peer with these files.
  grpc::Status CallWorkers(const std::shared_ptr<const RpcTls>& tls) {
    ConnectionLimits limits;
    limits.tls = tls;
    return RawCall(MakeChannel(router_->address("workers"), limits),
                   "/baton.worker.v1.WorkerLink/Open",
                   "",
                   std::chrono::seconds(5))
        .status;
  }
};

TEST_F(DoorTlsTest, GrpcClientsCheckTheRouter) {
  const auto name = ModelName(GrpcAddress(), authority_.ca_file());
  ASSERT_TRUE(name.ok()) << name.status();
  EXPECT_EQ(*name, "bytes");
  const TestAuthority another;
  EXPECT_THAT(std::string(Message(ModelName(GrpcAddress(), another.ca_file()).status())),
              HasSubstr("is refused: certificate signature failure"));
  EXPECT_FALSE(GenerationClient(GrpcAddress()).ModelName().ok());  // without encryption
}

TEST_F(DoorTlsTest, HttpsServesSeveralRequestsAndSpeaksHttp1) {
  HttpsConnection connection(router_->http(), authority_.ca_file());
  ASSERT_FALSE(connection.error()) << connection.error().message();
  EXPECT_EQ(connection.protocol(), "http/1.1");
  for (int i = 0; i < 3; ++i) {
    connection.Send("GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n");
    EXPECT_THAT(connection.ReadUntil("\"bytes\""), HasSubstr("200 OK"));
  }
  // Two requests at once.
  connection.Send(
      "GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\nGET /nothing HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_THAT(connection.ReadUntil("nothing is served"), HasSubstr("200 OK"));
  connection.Send("GET /nothing HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(connection.ReadUntil("no such text"), HasSubstr("404"));
  EXPECT_EQ(connection.error(), asio::error::eof) << connection.error().message();
}

TEST_F(DoorTlsTest, HttpsSpeaksHttp2WithClientsThatOfferIt) {
  const auto request = [](uint32_t stream, const std::string& path) {
    return http2::Frame(http2::kHeaders,
                        http2::kEndHeaders | http2::kEndStream,
                        stream,
                        http2::Header("GET", path));
  };
  for (const char* offer : {"\x08http/1.1\x02h2", "\x02h2\x08http/1.1", "\x02h2"}) {
    HttpsConnection connection(router_->http(), authority_.ca_file(), offer);
    ASSERT_FALSE(connection.error()) << connection.error().message();
    EXPECT_EQ(connection.protocol(), "h2");
    connection.Send(http2::Greeting() + request(1, "/v1/models"));
    EXPECT_THAT(connection.ReadUntil("\"bytes\""), HasSubstr("\"bytes\""));
    connection.Send(request(3, "/nothing") + request(5, "/v1/models"));
    std::string both = connection.ReadUntil("\"bytes\"");
    if (both.find("nothing is") == std::string::npos) both += connection.ReadUntil("nothing is");
    EXPECT_THAT(both, HasSubstr("nothing is served at GET /nothing"));
    connection.Send("these bytes are no frame of HTTP/2");
    const std::string end = connection.ReadUntil("no such text");
    EXPECT_GT(http2::ErrorCodeIn(end, http2::kGoAway), 0);
    EXPECT_EQ(connection.error(), asio::error::eof) << connection.error().message();
  }
  // A client that speaks HTTP/2 without having offered it is a client of HTTP/1.
  HttpsConnection rude(router_->http(), authority_.ca_file());
  rude.Send(http2::Greeting());
  EXPECT_THAT(rude.ReadUntil("no such text"), HasSubstr("HTTP/1.1 400"));
  HttpsConnection other(router_->http(), authority_.ca_file(), "\x03xyz");
  EXPECT_TRUE(other.error());
}

// RFC 9113, appendix A: those without forward secrecy, or without authenticated encryption.
TEST_F(DoorTlsTest, CipherSuitesThatHttp2ProhibitsAreRefused) {
  for (const char* offer : {"\x02h2", "\x08http/1.1"}) {
    for (const char* suite : {"AES128-GCM-SHA256",
                              "AES256-SHA",
                              "ECDHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-SHA",
                              "ECDHE-RSA-AES256-SHA384:ECDHE-ECDSA-AES256-SHA384"}) {
      HttpsConnection refused(router_->http(), authority_.ca_file(), offer, suite);
      EXPECT_TRUE(refused.error()) << suite;
      EXPECT_THAT(refused.error().message(), HasSubstr("handshake failure")) << suite;
    }
    for (const char* suite : {"ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256",
                              "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-CHACHA20-POLY1305"}) {
      HttpsConnection served(router_->http(), authority_.ca_file(), offer, suite);
      EXPECT_FALSE(served.error()) << suite << ": " << served.error().message();
      EXPECT_THAT(std::string(offer), HasSubstr(served.protocol()));
    }
  }
}

TEST_F(DoorTlsTest, PlainHttpOnTheTlsPortIsRefusedAndCounted) {
  RawConnection plain(router_->http());
  plain.Send("GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_TRUE(plain.ReadToEnd().has_value());
  EXPECT_EQ(router_->Metric("baton_http_failed_tls_handshakes_total"), 1);
  HttpsConnection after(router_->http(), authority_.ca_file());
  EXPECT_FALSE(after.error()) << after.error().message();
}

TEST_F(DoorTlsTest, AChangedCertificateIsUsedWithoutARestart) {
  const std::string before = HttpsConnection(router_->http(), authority_.ca_file()).serial();
  ASSERT_FALSE(before.empty());
  authority_.Make(ServerLeaf());
  std::string after = before;
  Await(
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        after = HttpsConnection(router_->http(), authority_.ca_file()).serial();
        return after != before;
      },
      "the new certificate");
  // A half-written file changes nothing.
  const double failed = router_->Metric("baton_security_failed_reloads_total");
  std::ofstream(authority_.Make(ServerLeaf()).certificate) << "-----BEGIN CERTIFICATE-----\nxyz";
  Await(
      [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        (void)HttpsConnection(router_->http(), authority_.ca_file()).serial();
        return router_->Metric("baton_security_failed_reloads_total") > failed;
      },
      "the half-written file");
  EXPECT_FALSE(HttpsConnection(router_->http(), authority_.ca_file()).error());
}

TEST_F(DoorTlsTest, WrongCertificatesOfTheRouterAreRefused) {
  TestAuthority::Leaf expired = ServerLeaf();
  expired.valid_seconds = -60;
  TestAuthority::Leaf other_host = ServerLeaf();
  other_host.dns_names = {"elsewhere.example"};
  other_host.ip_addresses = {"10.1.2.3"};
  TestAuthority::Leaf self_signed = ServerLeaf();
  self_signed.self_signed = true;
  for (auto [leaf, why] : {std::pair(expired, "is refused: certificate has expired"),
                           std::pair(other_host, "is refused: IP address mismatch"),
                           std::pair(self_signed, "is refused: self-signed certificate")}) {
    leaf.file = "wrong";
    const CertificateFiles files = authority_.Make(leaf);
    InProcess wrong(&router::StartRouter,
                    {"model.path=" + model_.path(),
                     "security.tls.certificate_file=" + files.certificate,
                     "security.tls.key_file=" + files.key});
    EXPECT_TRUE(HttpsConnection(wrong.http(), authority_.ca_file()).error());
    const auto name = ModelName(wrong.address("grpc"), authority_.ca_file());
    ASSERT_FALSE(name.ok());
    EXPECT_THAT(std::string(Message(name.status())), HasSubstr(why));
  }
}

// Lists are added while the router runs.
TEST_F(DoorTlsTest, PeersWithRevokedCertificatesAreRefused) {
  std::vector<CertificateFiles> peers;
  for (const char* name : {"first", "second"}) {
    TestAuthority::Leaf leaf;
    leaf.file = name;
    leaf.dns_names = {"baton"};
    peers.push_back(authority_.Make(leaf));
  }
  const auto call = [&](const CertificateFiles& files) {
    return CallWorkers(std::make_shared<const RpcTls>(
        RpcTls{files.certificate, files.key, authority_.ca_file(), "baton"}));
  };
  constexpr auto kServed = grpc::StatusCode::INVALID_ARGUMENT;  // of an empty message
  for (const CertificateFiles& peer : peers) EXPECT_EQ(call(peer).error_code(), kServed);
  for (const CertificateFiles& peer : peers) {
    EXPECT_EQ(call(peer).error_code(), kServed);
    authority_.Revoke(peer);
    CapturedStderr log;
    EXPECT_EQ(call(peer).error_code(), grpc::StatusCode::UNAVAILABLE);
    Await([&] { return log.Text().find("certificate revoked") != std::string::npos; },
          "the reason in the log");
    EXPECT_EQ(call(member_).error_code(), kServed);
  }
  EXPECT_EQ(call(peers[0]).error_code(), grpc::StatusCode::UNAVAILABLE);
  // A peer that dials a router whose certificate is revoked.
  RpcTls dialler{peers[0].certificate, peers[0].key, authority_.ca_file(), "baton"};
  dialler.crl_folder = authority_.crl_folder();
  authority_.Revoke(member_);
  const grpc::Status refused = CallWorkers(std::make_shared<const RpcTls>(dialler));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("certificate verify failed"));
}

TEST_F(DoorTlsTest, PeersNeedACertificateOfTheCluster) {
  const auto member = std::make_shared<const RpcTls>(
      RpcTls{member_.certificate, member_.key, authority_.ca_file(), "baton"});
  // The service answers, and refuses the empty message.
  EXPECT_EQ(CallWorkers(member).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(CallWorkers(nullptr).error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto without =
      std::make_shared<const RpcTls>(RpcTls{"", "", authority_.ca_file(), "baton"});
  EXPECT_EQ(CallWorkers(without).error_code(), grpc::StatusCode::UNAVAILABLE);
  TestAuthority::Leaf expired;
  expired.file = "expired";
  expired.dns_names = {"baton"};
  expired.valid_seconds = -60;
  TestAuthority::Leaf self_signed = expired;
  self_signed.file = "self_signed";
  self_signed.valid_seconds = 3600;
  self_signed.self_signed = true;
  for (const TestAuthority::Leaf& wrong : {expired, self_signed}) {
    const CertificateFiles files = authority_.Make(wrong);
    EXPECT_EQ(CallWorkers(std::make_shared<const RpcTls>(
                              RpcTls{files.certificate, files.key, authority_.ca_file(), "baton"}))
                  .error_code(),
              grpc::StatusCode::UNAVAILABLE)
        << wrong.file;
  }
  const TestAuthority another;
  TestAuthority::Leaf leaf;
  leaf.dns_names = {"baton"};
  const CertificateFiles stranger = another.Make(leaf);
  EXPECT_EQ(CallWorkers(std::make_shared<const RpcTls>(RpcTls{
                            stranger.certificate, stranger.key, authority_.ca_file(), "baton"}))
                .error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const auto other_name = std::make_shared<const RpcTls>(
      RpcTls{member_.certificate, member_.key, authority_.ca_file(), "another"});
  EXPECT_EQ(CallWorkers(other_name).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace baton
