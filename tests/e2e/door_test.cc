#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/host_port.h"
#include "tests/e2e/cluster.h"
#include "tests/support/raw_http.h"
#include "tests/support/temporary_folder.h"

// Scans every port on which the processes of a cluster listen.
namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(15);
// The limits of all ports are 10 s.
constexpr auto kStrangerLimit = std::chrono::seconds(20);

// The TCP ports on which a process listens, as "127.0.0.1:port".
std::set<std::string> ListeningPorts(pid_t pid) {
  std::set<std::string> inodes;
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  DIR* const descriptors = ::opendir(folder.c_str());
  EXPECT_NE(descriptors, nullptr);
  if (descriptors == nullptr) return {};
  while (const dirent* entry = ::readdir(descriptors)) {
    char target[256] = {};
    const std::string path = folder + "/" + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof(target) - 1) <= 0) continue;
    const std::string link = target;
    if (link.rfind("socket:[", 0) == 0) inodes.insert(link.substr(8, link.size() - 9));
  }
  ::closedir(descriptors);
  std::set<std::string> ports;
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream file(fmt::format("/proc/{}/net/{}", pid, table));
    std::string line;
    std::getline(file, line);  // the heading
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      if (state != "0A" || !inodes.contains(inode)) continue;  // 0A: listening
      ports.insert(
          fmt::format("127.0.0.1:{}", std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

class DoorScanTest : public ClusterTest {
 protected:
  // The name of the row of README.md's table for each port; fails for a port that has none.
  std::map<std::string, std::string> NamedPorts(const ClusterMember& member) {
    std::map<std::string, std::string> named;
    for (const auto& [name, address] : member.addresses) named[address] = name;
    for (const std::string& port : ListeningPorts(member.process->pid())) {
      // The data port is not announced on stdout: only peers use it.
      if (!named.contains(port)) named[port] = "kv data";
    }
    return named;
  }
  static std::string Table() {
    std::ifstream file("README.md");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The sum over all ports' series of a member's metric.
  double Refused(const std::string& member) {
    const std::string text = HttpGet(http(member), "/metrics").body;
    double sum = 0;
    const std::string name = "\nbaton_security_refused_total{";
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      sum += std::atof(text.c_str() + text.find('}', at) + 1);
    }
    return sum;
  }
};

TEST_F(DoorScanTest, EveryPortIsInTheTableAndTakesNoGarbage) {
  StartCluster(1, 1, {"transfer.transports=[tcp]", "engine.kv_memory_mib=64"});
  if (HasFatalFailure()) return;
  const std::string answer = Ask("Before the scan", 8).text;
  const std::string table = Table();
  std::string tls_hello("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 11);
  tls_hello.append(160, 'r');
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string(4096, '\xff'),
      tls_hello,
      std::string("BHS1\x01\0\0\0", 8) + std::string(32, 'n'),
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(64, 'z')};
  size_t scanned = 0;
  std::set<std::string> names;
  for (const ClusterMember& member : cluster().members()) {
    for (const auto& [port, name] : NamedPorts(member)) {
      EXPECT_THAT(table, HasSubstr("\n| " + name + " |")) << member.name << " listens on " << port;
      names.insert(name);
      for (const std::string& bytes : garbage) {
        RawConnection connection(port);
        ASSERT_TRUE(connection.connected()) << port;
        connection.Send(bytes);
        ::shutdown(connection.fd(), SHUT_WR);
        EXPECT_TRUE(connection.ReadToEnd(kPatience).has_value())
            << member.name << "'s port " << name << " keeps a stranger: " << bytes.substr(0, 16);
        ++scanned;
      }
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"admin", "grpc", "http", "kv", "kv data", "workers"}));
  EXPECT_GE(scanned, 5 * 8u);
  EXPECT_GE(Refused("decode-0"), 1);
  EXPECT_EQ(Ask("Before the scan", 8).text, answer);
  ExpectNoLeaks({"prefill-0", "decode-0"});
}

// Silent connections, and ones that send a valid beginning byte by byte, on all ports at once.
TEST_F(DoorScanTest, NoPortKeepsAStrangerWhoIsSilentOrSlow) {
  StartCluster(1, 1, {"transfer.transports=[tcp]", "engine.kv_memory_mib=64"});
  if (HasFatalFailure()) return;
  struct Stranger {
    std::string port;
    std::string bytes;  // empty: silent
    std::unique_ptr<RawConnection> connection;
    bool closed = false;
  };
  const std::string http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(200, '\0');
  const std::string proof = std::string("BHS1\x01\0\0\0", 8) + std::string(200, 'n');
  const std::string http = "GET /v1/models HTTP/1.1\r\nHost: t\r\nx: " + std::string(200, 'y');
  std::vector<Stranger> strangers;
  for (const ClusterMember& member : cluster().members()) {
    for (const auto& [port, name] : NamedPorts(member)) {
      const std::string& slow = name == "http" ? http : name == "kv data" ? proof : http2;
      for (const std::string& bytes : {std::string(), slow}) {
        strangers.push_back(
            {member.name + "'s " + name, bytes, std::make_unique<RawConnection>(port)});
        ASSERT_TRUE(strangers.back().connection->connected()) << port;
      }
    }
  }
  ASSERT_GE(strangers.size(), 2 * 8u);
  const Time limit = SteadyClock().Now() + kStrangerLimit;
  for (size_t i = 0; SteadyClock().Now() < limit; ++i) {
    for (Stranger& stranger : strangers) {
      if (stranger.closed) continue;
      if (i < stranger.bytes.size()) stranger.connection->Send(stranger.bytes.substr(i, 1));
      stranger.closed = stranger.connection->ReadToEnd(std::chrono::milliseconds(1)).has_value();
    }
    if (std::ranges::all_of(strangers, &Stranger::closed)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  for (const Stranger& stranger : strangers) {
    EXPECT_TRUE(stranger.closed) << stranger.port << " keeps a stranger who "
                                 << (stranger.bytes.empty() ? "is silent" : "sends slowly");
  }
  EXPECT_FALSE(Ask("After the strangers", 8).text.empty());
}

TEST_F(DoorScanTest, AWorkerOfAnotherClusterIsToldWhatToDo) {
  StartCluster(1, 1);
  if (HasFatalFailure()) return;
  const TemporaryFolder folder;
  const std::string other = folder.Write("secret", "the-secret-of-another-cluster-222\n");
  AddWorker("decode", "stranger", {"security.cluster_secret_file=" + other});
  const Time limit = SteadyClock().Now() + kPatience;
  while (LogOf("stranger").find("another cluster secret") == std::string::npos &&
         SteadyClock().Now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_THAT(LogOf("stranger"), HasSubstr("compare the files that security.cluster_secret_file"));
  EXPECT_THAT(LogOf("router"), HasSubstr("has another cluster secret"));
  EXPECT_GE(Refused("router"), 1);
  EXPECT_TRUE(cluster().WaitJoined(2, kStartLimit).ok());
}

TEST_F(DoorScanTest, OffLoopbackAProcessWithoutProofsDoesNotStart) {
  for (const char* setting : {"listen", "worker_listen", "admin_listen", "process.http_listen"}) {
    auto router = ChildProcess::Start({{BATON_BINARY_FOLDER "/baton-router",
                                        "--set",
                                        std::string("model.path=") + BATON_TEST_MODEL,
                                        "--set",
                                        std::string(setting) + "=0.0.0.0:0"},
                                       ""});
    ASSERT_TRUE(router.ok()) << router.status();
    EXPECT_EQ((*router)->WaitExit(kStartLimit), 2) << setting;
  }
}

}  // namespace
}  // namespace baton
