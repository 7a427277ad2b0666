// Strangers flood each port that speaks HTTP/2. They prove nothing, and what they send is only what
// anybody may send. No process may grow, and no flood may be served for long. Peers that have
// proven who they are may be served longer, but no process may grow by them either.
#include <sys/socket.h>

#include <condition_variable>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/security/api_keys.h"
#include "tests/e2e/cluster.h"
#include "tests/fakes/test_api_key.h"
#include "tests/support/http2_flood.h"
#include "tests/support/https_connection.h"
#include "tests/support/raw_http.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_certificates.h"

namespace baton {
namespace {

constexpr auto kServedLimit = std::chrono::seconds(2);
constexpr auto kProvenFlood = std::chrono::milliseconds(300);  // of peers that may be served longer
constexpr double kGrowthMib = 64;
constexpr double kStayingMib = 32;  // after the floods
constexpr size_t kManyConnections = 200;
constexpr auto kPatience = std::chrono::seconds(10);

// A value of /proc/PID/status in MiB.
double MemoryMib(pid_t pid, const std::string& name) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::atof(line.c_str() + name.size() + 1) / 1024;
  }
  ADD_FAILURE() << "the process " << pid << " has ended";
  return 1e9;
}

// From now on VmHWM is the peak since this call (proc(5)).
void ForgetPeak(pid_t pid) {
  std::ofstream(fmt::format("/proc/{}/clear_refs", pid)) << "5";
}

// How clients reach a port with TLS. Without an authority: no TLS.
struct Encryption {
  std::string ca_file;
  CertificateFiles own;  // empty: none
  bool proves = false;   // the port takes `own` as a proof
};

class Flooder final {
 public:
  Flooder(const std::string& address, const Encryption& encryption, const http2::Flood& flood)
      : flood_(flood) {
    if (encryption.ca_file.empty()) {
      plain_ = std::make_unique<RawConnection>(address);
      open_ = plain_->connected();
    } else {
      tls_ = std::make_unique<HttpsConnection>(
          address, encryption.ca_file, "\x02h2", "", encryption.own);
      open_ = !tls_->error();
    }
    EXPECT_TRUE(open_) << address;
    Send(http2::Greeting() + flood.first);
  }
  void Continue() { Send(flood_.next(turn_++)); }
  bool open() const { return open_; }
  // Any thread: ends the connection, also for a thread that waits in Continue.
  void End() { ::shutdown(plain_ != nullptr ? plain_->fd() : tls_->fd(), SHUT_RDWR); }

 private:
  void Send(const std::string& bytes) {
    if (!open_) return;
    if (plain_ != nullptr) {
      open_ = plain_->Send(bytes);
    } else {
      tls_->Send(bytes);
      open_ = !tls_->error();
    }
  }

  const http2::Flood& flood_;
  std::unique_ptr<RawConnection> plain_;
  std::unique_ptr<HttpsConnection> tls_;
  bool open_ = false;
  uint32_t turn_ = 0;
};

class FloodTest : public ClusterTest {
 protected:
  // Floods a port of `member` with all kinds: each on one connection, then, by strangers, all on
  // many.
  void FloodPort(const std::string& member,
                 const std::string& name,
                 const Encryption& encryption = {}) {
    const pid_t pid = process(member).pid();
    const std::string address = cluster().Find(member)->addresses.at(name);
    const std::vector<http2::Flood> floods = http2::Floods("/baton.v1.Generation/Generate");
    const double before = MemoryMib(pid, "VmRSS");
    ForgetPeak(pid);
    const auto check = [&](const std::string& what) {
      const double growth = MemoryMib(pid, "VmHWM") - before;
      EXPECT_LE(growth, kGrowthMib) << what;
      return growth < 4 * kGrowthMib;
    };
    for (const http2::Flood& flood : floods) {
      std::vector<std::unique_ptr<Flooder>> one;
      one.push_back(std::make_unique<Flooder>(address, encryption, flood));
      const std::string what = fmt::format("{}'s port {}: {}", member, name, flood.name);
      Run(one, encryption, what);
      if (!check(what)) return;
    }
    if (encryption.proves) return;
    std::vector<std::unique_ptr<Flooder>> many;
    while (many.size() < kManyConnections) {
      const http2::Flood& flood = floods[many.size() % floods.size()];
      many.push_back(std::make_unique<Flooder>(address, encryption, flood));
    }
    const std::string what = fmt::format("{}'s port {}: all at once", member, name);
    Run(many, encryption, what);
    check(what);
    many.clear();
    const Time limit = SteadyClock().Now() + kPatience;
    while (MemoryMib(pid, "VmRSS") > before + kStayingMib && SteadyClock().Now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_LE(MemoryMib(pid, "VmRSS"), before + kStayingMib) << what << ", after their end";
  }

 private:
  // Sends on all connections in turn until the server has ended all of them, which it has to do
  // with strangers.
  static void Run(std::vector<std::unique_ptr<Flooder>>& flooders,
                  const Encryption& encryption,
                  const std::string& what) {
    const Duration limit = encryption.proves ? Duration(kProvenFlood) : Duration(kServedLimit);
    const Time start = SteadyClock().Now();
    // A server that neither reads nor ends a connection would let its client wait for ever.
    const std::jthread ends_waits([&](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait_for(lock, stop, limit, [] { return false; });
      for (const auto& flooder : flooders) flooder->End();
    });
    size_t open = flooders.size();
    while (open > 0 && SteadyClock().Now() - start < limit) {
      open = 0;
      for (const auto& flooder : flooders) {
        if (flooder->open()) flooder->Continue();
        if (flooder->open()) ++open;
      }
    }
    if (encryption.proves) return;
    const Duration served = SteadyClock().Now() - start;
    EXPECT_LT(served, limit) << what << ": served for " << ToSeconds(served) << " s";
  }
};

TEST_F(FloodTest, NoStrangerGrowsAProcess) {
  StartCluster(1, 1);
  if (HasFatalFailure()) return;
  for (const char* port : {"http", "grpc", "workers", "admin"}) FloodPort("router", port);
  for (const char* port : {"http", "kv"}) FloodPort("decode-0", port);
  EXPECT_FALSE(Ask("After the floods", 8).text.empty());
}

// A cluster whose ports speak TLS. Its clients and its members have certificates of one authority.
class EncryptedFloodTest : public FloodTest {
 protected:
  void StartEncrypted() {
    const std::string& ca = authority_.ca_file();
    const std::vector<std::string> members = {
        "security.tls.certificate_file=" + own_.certificate,
        "security.tls.key_file=" + own_.key,
        "security.tls.client_ca_file=" + ca,
        "security.cluster_tls.certificate_file=" + own_.certificate,
        "security.cluster_tls.key_file=" + own_.key,
        "security.cluster_tls.ca_file=" + ca,
        "security.cluster_tls.peer_name=baton"};
    ApiKeys keys;
    ASSERT_TRUE(keys.Add(TestApiKey("bob")).ok());
    ApiKeys operators;
    ASSERT_TRUE(operators.Add(TestApiKey("olga")).ok());
    EndpointFlags operator_flags;
    operator_flags.ca_file = ca;
    operator_flags.key_file = folder_.Write("olga.key", "key-olga\n");
    SetOperators(operator_flags);
    std::vector<std::string> router = members;
    router.insert(router.end(),
                  {"admin_listen=0.0.0.0:0",  // on loopback this port has no TLS
                   "security.admin_keys_file=" + folder_.Write("admin.json", operators.ToJson()),
                   "security.api_keys_file=" + folder_.Write("keys.json", keys.ToJson())});
    StartCluster(1, 1, members, router);
  }
  // A client without a certificate may speak TLS, but has proven nothing.
  Encryption nobody() const { return {authority_.ca_file(), {}}; }
  Encryption With(const std::string& name) const {
    return {authority_.ca_file(), authority_.Make({.file = name, .dns_names = {name}}), true};
  }

 private:
  TestAuthority::Leaf Own() const {
    return {.file = "server",
            .dns_names = {"localhost", "baton"},
            .ip_addresses = {"127.0.0.1", "0.0.0.0"}};
  }

  TemporaryFolder folder_;
  TestAuthority authority_;
  CertificateFiles own_ = authority_.Make(Own());
};

TEST_F(EncryptedFloodTest, NoStrangerGrowsAProcess) {
  StartEncrypted();
  if (HasFatalFailure()) return;
  for (const char* port : {"http", "grpc", "admin"}) FloodPort("router", port, nobody());
  FloodPort("decode-0", "http", nobody());
  // The cluster's ports end the handshake.
  FloodPort("router", "workers", nobody());
  FloodPort("decode-0", "kv", nobody());
}

// The bytes of HTTP/2 are no handshake of TLS.
TEST_F(EncryptedFloodTest, NoStrangerWithoutTlsGrowsAProcess) {
  StartEncrypted();
  if (HasFatalFailure()) return;
  for (const char* port : {"http", "grpc", "workers", "admin"}) FloodPort("router", port);
  for (const char* port : {"http", "kv"}) FloodPort("decode-0", port);
}

// Operators prove who they are by keys, so a client's certificate says nothing to their port.
TEST_F(EncryptedFloodTest, AClientWithACertificateIsAStrangerToOperators) {
  StartEncrypted();
  if (HasFatalFailure()) return;
  Encryption stranger = With("bob");
  stranger.proves = false;
  FloodPort("router", "admin", stranger);
}

TEST_F(EncryptedFloodTest, NobodyWithACertificateGrowsAProcess) {
  StartEncrypted();
  if (HasFatalFailure()) return;
  for (const char* port : {"http", "grpc"}) FloodPort("router", port, With("bob"));
  FloodPort("decode-0", "http", With("bob"));
  FloodPort("router", "workers", With("baton"));
  FloodPort("decode-0", "kv", With("baton"));
}

}  // namespace
}  // namespace baton
