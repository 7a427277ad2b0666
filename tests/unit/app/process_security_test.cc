#include "common/app/process_security.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/config/config.h"
#include "common/log/log.h"
#include "common/security/api_keys.h"
#include "common/security/cluster_secret.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ProcessSecurityTest : public ::testing::Test {
 protected:
  StatusOr<std::unique_ptr<ProcessSecurity>> Open(const config::SecurityConfig& config) {
    return ProcessSecurity::Open(config, metrics_);
  }
  std::string Refusal(const config::SecurityConfig& config,
                      const std::string& address,
                      PortUsers users) {
    const auto security = Open(config);
    EXPECT_TRUE(security.ok()) << security.status();
    const Status checked = (*security)->CheckPort("listen", address, users);
    if (checked.ok()) return "";
    EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument);
    return std::string(Message(checked));
  }
  HttpVerdict Verdict(const config::SecurityConfig& config,
                      const std::string& address,
                      const std::string& path) {
    const auto security = Open(config);
    HttpRequest request;
    request.method = "GET";
    request.path = path;
    request.client = "10.0.0.1";
    return (*security)->MakeHttpGate(address)(request);
  }

  MetricsRegistry metrics_;
  TemporaryFolder folder_;
};

constexpr PortUsers kAllUsers[] = {
    PortUsers::kClients, PortUsers::kOperators, PortUsers::kPeers, PortUsers::kKvData};

TEST_F(ProcessSecurityTest, OnLoopbackNothingIsNeeded) {
  for (const PortUsers users : kAllUsers) {
    EXPECT_EQ(Refusal({}, "127.0.0.1:0", users), "");
    EXPECT_EQ(Refusal({}, "[::1]:0", users), "");
  }
}

TEST_F(ProcessSecurityTest, OffLoopbackTheMissingSettingIsNamed) {
  const std::pair<PortUsers, const char*> needed[] = {
      {PortUsers::kClients, "security.api_keys_file"},
      {PortUsers::kOperators, "security.admin_keys_file"},
      {PortUsers::kPeers, "security.cluster_secret_file"},
      {PortUsers::kKvData, "security.cluster_secret_file"}};
  for (const auto& [users, setting] : needed) {
    EXPECT_THAT(Refusal({}, "0.0.0.0:7080", users),
                AllOf(HasSubstr("listen is 0.0.0.0:7080"),
                      HasSubstr(setting),
                      HasSubstr("security.insecure: true")));
  }
}

TEST_F(ProcessSecurityTest, InsecureOpensThePortAndTheLogSaysSo) {
  CapturedStderr log;
  config::SecurityConfig config;
  config.set_insecure(true);
  EXPECT_EQ(Refusal(config, "0.0.0.0:7080", PortUsers::kOperators), "");
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  EXPECT_THAT(log.Text(),
              HasSubstr("security.insecure is true: whoever reaches listen = "
                        "0.0.0.0:7080 may drain workers"));
}

TEST_F(ProcessSecurityTest, EachProofOpensItsPort) {
  ApiKeys keys;
  config::SecurityConfig config;
  config.set_api_keys_file(folder_.Write("keys", keys.ToJson()));
  EXPECT_EQ(Refusal(config, "0.0.0.0:1", PortUsers::kClients), "");
  EXPECT_NE(Refusal(config, "0.0.0.0:1", PortUsers::kOperators), "");
  config.set_admin_keys_file(folder_.Write("admin", keys.ToJson()));
  EXPECT_EQ(Refusal(config, "0.0.0.0:1", PortUsers::kOperators), "");
  EXPECT_NE(Refusal(config, "0.0.0.0:1", PortUsers::kPeers), "");
  config.set_cluster_secret_file(folder_.Write("secret", ClusterSecret::Generate()));
  for (const PortUsers users : kAllUsers) EXPECT_EQ(Refusal(config, "0.0.0.0:1", users), "");
}

TEST_F(ProcessSecurityTest, CertificatesOfClientsOpenTheirPort) {
  const TestAuthority authority;
  const CertificateFiles server = authority.Make({.file = "server"});
  config::SecurityConfig config;
  config.mutable_tls()->set_client_ca_file(authority.ca_file());
  EXPECT_THAT(std::string(Message(Open(config).status())),
              HasSubstr("it needs security.tls.certificate_file and key_file"));
  config.mutable_tls()->set_certificate_file(server.certificate);
  config.mutable_tls()->set_key_file(server.key);
  EXPECT_EQ(Refusal(config, "0.0.0.0:1", PortUsers::kClients), "");
  EXPECT_NE(Refusal(config, "0.0.0.0:1", PortUsers::kOperators), "");
  config.mutable_tls()->set_client_ca_file(folder_.Write("ca", "-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(std::string(Message(Open(config).status())),
              AllOf(HasSubstr("security.tls: "), HasSubstr("is not a PEM file")));
}

TEST_F(ProcessSecurityTest, WrongFilesAreWrongSettings) {
  const auto error = [&](const config::SecurityConfig& config) {
    const auto security = Open(config);
    EXPECT_EQ(security.status().code(), StatusCode::kInvalidArgument);
    return std::string(Message(security.status()));
  };
  config::SecurityConfig secret;
  secret.set_cluster_secret_file(folder_.path() + "/absent");
  EXPECT_THAT(error(secret),
              AllOf(HasSubstr("security.cluster_secret_file: "), HasSubstr("absent")));
  config::SecurityConfig keys;
  keys.set_api_keys_file(folder_.Write("keys", "{}"));
  EXPECT_THAT(error(keys), HasSubstr("security.api_keys_file: "));
  config::SecurityConfig half;
  half.mutable_tls()->set_certificate_file(folder_.Write("crt", "-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(error(half), AllOf(HasSubstr("security.tls: "), HasSubstr("both are needed")));
  config::SecurityConfig garbage;
  garbage.mutable_tls()->set_certificate_file(folder_.Write("c", "-----BEGIN CERTIFICATE-----\nx"));
  garbage.mutable_tls()->set_key_file(folder_.Write("k", "-----BEGIN PRIVATE KEY-----\nx"));
  EXPECT_THAT(error(garbage), HasSubstr("is not a PEM file with a certificate"));
  const TestAuthority authority;
  const CertificateFiles one = authority.Make({.file = "one"});
  const CertificateFiles two = authority.Make({.file = "two"});
  for (const bool of_cluster : {false, true}) {
    config::SecurityConfig mixed;
    if (of_cluster) {
      mixed.mutable_cluster_tls()->set_certificate_file(one.certificate);
      mixed.mutable_cluster_tls()->set_key_file(two.key);
      mixed.mutable_cluster_tls()->set_ca_file(authority.ca_file());
    } else {
      mixed.mutable_tls()->set_certificate_file(one.certificate);
      mixed.mutable_tls()->set_key_file(two.key);
    }
    EXPECT_THAT(error(mixed), HasSubstr("is not that of the certificate"));
  }
  config::SecurityConfig cluster;
  cluster.mutable_cluster_tls()->set_ca_file(folder_.Write("ca", "-----BEGIN CERTIFICATE-----"));
  EXPECT_THAT(error(cluster), HasSubstr("all of them"));
}

TEST_F(ProcessSecurityTest, PagesOffLoopbackNeedAKeyUnlessTheyAreOpen) {
  EXPECT_EQ(Verdict({}, "127.0.0.1:0", "/metrics").status, 0);
  EXPECT_EQ(Verdict({}, "0.0.0.0:0", "/metrics").status, 401);
  EXPECT_EQ(Verdict({}, "0.0.0.0:0", "/v1/models").status, 401);
  for (const char* probe : {"/healthz", "/health", "/readyz"}) {
    EXPECT_EQ(Verdict({}, "0.0.0.0:0", probe).status, 0) << probe;
  }
  config::SecurityConfig open;
  open.set_open_pages(true);
  EXPECT_EQ(Verdict(open, "0.0.0.0:0", "/metrics").status, 0);
  EXPECT_EQ(Verdict(open, "0.0.0.0:0", "/v1/models").status, 401);
  config::SecurityConfig insecure;
  insecure.set_insecure(true);
  EXPECT_EQ(Verdict(insecure, "0.0.0.0:0", "/v1/models").status, 0);
}

}  // namespace
}  // namespace baton
