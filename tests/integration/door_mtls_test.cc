#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "cli/generation_client.h"
#include "common/security/api_keys.h"
#include "tests/fakes/test_api_key.h"
#include "tests/integration/router_service.h"
#include "tests/support/https_connection.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_certificates.h"

// Clients that prove who they are by a certificate.
namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Authorities {
 protected:
  std::vector<std::string> Settings() {
    TestAuthority::Leaf leaf;
    leaf.file = "server";
    leaf.ip_addresses = {"127.0.0.1"};
    const CertificateFiles server = servers_.Make(leaf);
    ApiKeys keys;
    EXPECT_TRUE(keys.Add(TestApiKey("bob")).ok());
    ApiKeys operators;
    EXPECT_TRUE(operators.Add(TestApiKey("root")).ok());
    return {"security.tls.certificate_file=" + server.certificate,
            "security.tls.key_file=" + server.key,
            "security.tls.client_ca_file=" + clients_.ca_file(),
            "security.tls.client_crl_folder=" + clients_.crl_folder(),
            "security.api_keys_file=" + folder_.Write("keys.json", keys.ToJson()),
            "security.admin_keys_file=" + folder_.Write("admin.json", operators.ToJson())};
  }
  CertificateFiles Client(const std::string& name) const { return clients_.Make({.file = name}); }

  TemporaryFolder folder_;
  TestAuthority servers_;
  TestAuthority clients_;
};

class DoorMtlsTest : public Authorities, public RouterServiceTest {
 protected:
  DoorMtlsTest() : RouterServiceTest(Settings()) {}

  // The answer to a GET, or "" when the handshake fails.
  std::string Get(const CertificateFiles& own,
                  const std::string& path = "/v1/models",
                  const std::string& key = "") {
    HttpsConnection connection(router_->http(), servers_.ca_file(), "\x08http/1.1", "", own);
    connection.Send(
        fmt::format("GET {} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{}\r\n",
                    path,
                    key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", key)));
    return connection.ReadUntil("no such text");
  }
  Status Call(const CertificateFiles& own, const std::string& key = "") {
    RouterEndpoint endpoint(router_->address("grpc"));
    endpoint.tls = true;
    endpoint.ca_file = servers_.ca_file();
    endpoint.key = key;
    endpoint.certificate_file = own.certificate;
    endpoint.certificate_key_file = own.key;
    return GenerationClient(endpoint).ModelName().status();
  }
};

TEST_F(DoorMtlsTest, ACertificateIsAsGoodAsAKey) {
  const CertificateFiles alice = Client("alice");
  EXPECT_THAT(Get(alice), HasSubstr("200 OK"));
  EXPECT_THAT(Get({}, "/v1/models", "key-bob"), HasSubstr("200 OK"));
  EXPECT_THAT(
      Get({}),
      AllOf(HasSubstr("401"), HasSubstr("an API key or a client's certificate is missing")));
  EXPECT_THAT(Get(alice, "/v1/models", "key-nobody"), HasSubstr("401"));
  EXPECT_THAT(Get({}, "/healthz"), HasSubstr("404"));  // not refused; only processes serve it
  // Certificates of clients are not for operators.
  EXPECT_THAT(Get(alice, "/status.json"), HasSubstr("401"));
  EXPECT_THAT(Get({}, "/status.json", "key-root"), HasSubstr("200 OK"));
}

TEST_F(DoorMtlsTest, GrpcTakesCertificatesToo) {
  const CertificateFiles alice = Client("alice");
  EXPECT_EQ(Call(alice), OkStatus());
  EXPECT_EQ(Call({}, "key-bob"), OkStatus());
  EXPECT_EQ(Call({}).code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Call(alice, "key-nobody").code(), StatusCode::kUnauthenticated);
  const Status unknown = Call(servers_.Make({.file = "alice"}));
  EXPECT_EQ(unknown.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(unknown)),
              AllOf(HasSubstr("refuses the certificate"), HasSubstr("client_ca_file")));
  const Status plain = GenerationClient(router_->address("grpc")).ModelName().status();
  EXPECT_THAT(std::string(Message(plain)), HasSubstr("is encrypted; pass --tls"));
  clients_.Revoke(alice);
  EXPECT_EQ(Call(alice).code(), StatusCode::kUnavailable);
}

TEST_F(DoorMtlsTest, CertificatesThatAreNotValidEndTheHandshake) {
  TestAuthority::Leaf late = {.file = "late"};
  late.valid_seconds = -60;
  TestAuthority::Leaf own = {.file = "own"};
  own.self_signed = true;
  // The authority of servers does not sign for clients.
  for (const CertificateFiles& files :
       {clients_.Make(late), clients_.Make(own), servers_.Make({.file = "alice"})}) {
    EXPECT_EQ(Get(files), "") << files.certificate;
  }
  EXPECT_THAT(Get(Client("a b")), AllOf(HasSubstr("401"), HasSubstr("the common name")));
}

TEST_F(DoorMtlsTest, ARevokedCertificateIsRefusedWithoutARestart) {
  const CertificateFiles gone = Client("gone");
  EXPECT_THAT(Get(gone), HasSubstr("200 OK"));
  clients_.Revoke(gone);
  EXPECT_EQ(Get(gone), "");
  EXPECT_THAT(Get(Client("stays")), HasSubstr("200 OK"));
}

}  // namespace
}  // namespace baton
