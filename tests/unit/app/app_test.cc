#include <signal.h>
#include <sys/resource.h>

#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/app/child_process.h"
#include "common/app/descriptor_limit.h"
#include "common/app/run_service.h"
#include "common/app/version.h"
#include "common/base/mapped_file.h"
#include "tests/support/full_pipe.h"
#include "tests/support/raw_http.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(30);

class AppTest : public ::testing::Test {
 protected:
  void Launch(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), BinaryFolder() + "/sample_service");
    auto child = ChildProcess::Start({arguments, log_file_});
    ASSERT_TRUE(child.ok()) << child.status();
    child_ = *std::move(child);
  }
  void LaunchSample(const std::string& attempts, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> arguments = {
        "--set", "model.path=m", "--set", "max_attempts=" + attempts};
    for (const std::string& one : overrides) {
      arguments.push_back("--set");
      arguments.push_back(one);
    }
    Launch(std::move(arguments));
  }
  void LaunchReady(const std::string& attempts, const std::vector<std::string>& overrides = {}) {
    LaunchSample(attempts, overrides);
    auto addresses = child_->WaitReady(kLimit);
    ASSERT_TRUE(addresses.ok()) << addresses.status();
    addresses_ = *addresses;
  }
  int ExitOf(std::vector<std::string> arguments) {
    Launch(std::move(arguments));
    output_ = child_->ReadStdout(kLimit);
    return child_->WaitExit(kLimit).value_or(-1);
  }

  // The value of a series at /metrics; -1 when there is no such series.
  double Metric(const std::string& series) {
    const std::string text = "\n" + HttpGet(addresses_["http"], "/metrics").body;
    const size_t at = text.find("\n" + series + " ");
    return at == std::string::npos ? -1 : std::atof(text.c_str() + at + series.size() + 2);
  }

  std::string log_file_;  // empty: our stderr
  std::unique_ptr<ChildProcess> child_;
  std::map<std::string, std::string> addresses_;
  std::string output_;
};

TEST_F(AppTest, AnnouncesItsAddressesAndServesProbes) {
  LaunchReady("4");
  EXPECT_EQ(addresses_["grpc"], "127.0.0.1:0");
  EXPECT_EQ(HttpGet(addresses_["http"], "/healthz").body, "ok\n");
  EXPECT_EQ(HttpGet(addresses_["http"], "/health").body, "ok\n");
  EXPECT_EQ(HttpGet(addresses_["http"], "/readyz").status, 200);
  EXPECT_EQ(HttpGet(addresses_["http"], "/metrics").status, 200);
  EXPECT_EQ(child_->WaitExit(std::chrono::seconds(0)), std::nullopt);
}

TEST_F(AppTest, AProcessThatStartsAsksItsClientsToTryAgain) {
  const TemporaryFolder folder;
  log_file_ = folder.Write("log", "");
  LaunchSample("5");
  const std::string begin = "listens at http://";
  std::string log;
  const Time deadline = SteadyClock().Now() + kLimit;
  while (log.find(begin) == std::string::npos || !log.ends_with('\n')) {
    ASSERT_LT(SteadyClock().Now(), deadline) << log;
    log = ReadFile(log_file_).value();
  }
  const size_t at = log.find(begin) + begin.size();
  const std::string http = log.substr(at, log.find('/', at) - at);
  for (const char* path : {"/v1/models", "/status.json", "/"}) {
    const HttpAnswer answer = HttpGet(http, path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_THAT(answer.head, HasSubstr("Retry-After: 1\r\n"));
  }
  EXPECT_EQ(HttpGet(http, "/readyz").status, 503);
  EXPECT_EQ(HttpGet(http, "/healthz").status, 200);
  child_->Signal(SIGTERM);
  EXPECT_EQ(child_->WaitExit(kLimit), 128 + SIGTERM);
}

TEST_F(AppTest, ReadyzSaysWhatIsMissing) {
  LaunchReady("1");
  const auto answer = HttpGet(addresses_["http"], "/readyz");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "no worker yet\n");
}

TEST_F(AppTest, HttpLimitsAreSettings) {
  LaunchReady("4",
              {"process.http_limits.max_connections=2",
               "process.http_limits.max_body_bytes=1024",
               "process.http_limits.max_waiting_body_bytes=1024",
               "process.http_limits.max_header_bytes=2048"});
  const std::string http = addresses_["http"];
  EXPECT_EQ(HttpGet(http, "/healthz?" + std::string(2100, 'q')).status, 431);
  const auto post = [&](int bytes) {
    return HttpSend(http,
                    fmt::format("POST /x HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", bytes))
        .status;
  };
  EXPECT_EQ(post(1025), 413);
  EXPECT_EQ(post(1024), 404);
  RawConnection first(http);
  RawConnection second(http);
  for (RawConnection* const known : {&first, &second}) {
    ASSERT_TRUE(known->Send("GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n"));
    EXPECT_THAT(known->ReadUntil("}}"), HasSubstr("HTTP/1.1 404 "));
  }
  EXPECT_EQ(HttpGet(http, "/nothing").status, 503);
  for (const char* probe : {"/healthz", "/health", "/readyz", "/metrics"}) {
    EXPECT_EQ(HttpGet(http, probe).status, 200) << probe;
  }
}

TEST_F(AppTest, TheHttpLimitsOfAnAddressAndOfProbesAreSettings) {
  LaunchReady("4",
              {"process.http_limits.max_connections_per_address=2",
               "process.http_limits.reserved_connections=1"});
  const std::string http = addresses_["http"];
  RawConnection first(http);
  RawConnection second(http);
  for (RawConnection* const known : {&first, &second}) {
    ASSERT_TRUE(known->Send("GET /nothing HTTP/1.1\r\nHost: t\r\n\r\n"));
    EXPECT_THAT(known->ReadUntil("}}"), HasSubstr("HTTP/1.1 404 "));
  }
  EXPECT_THAT(HttpGet(http, "/nothing").body, HasSubstr("has 2 connections"));
  EXPECT_EQ(HttpGet(http, "/healthz").status, 200);
  RawConnection reserved(http);
  ASSERT_TRUE(reserved.connected());
  EXPECT_EQ(HttpGet(http, "/healthz").status, 200);
  EXPECT_THAT(reserved.ReadToEnd().value_or("it has not given way"), HasSubstr("HTTP/1.1 503 "));
}

TEST_F(AppTest, HttpTimeoutsAreSettings) {
  const std::string no_end = "GET /healthz HTTP/1.1\r\nHost: t\r\n";
  const std::string no_body = no_end + "Content-Length: 9\r\n\r\n";
  LaunchReady("4", {"process.http_limits.header_timeout_seconds=0.05"});
  EXPECT_EQ(HttpSend(addresses_["http"], no_end).status, 408);
  LaunchReady("4", {"process.http_limits.body_timeout_seconds=0.05"});
  EXPECT_EQ(HttpSend(addresses_["http"], no_body).status, 408);
  LaunchReady("4", {"process.http_limits.idle_timeout_seconds=0.05"});
  RawConnection idle(addresses_["http"]);
  ASSERT_TRUE(idle.Send(no_end + "\r\n"));
  EXPECT_THAT(idle.ReadToEnd(kLimit).value_or("it is still open"), HasSubstr("HTTP/1.1 200 "));
}

TEST_F(AppTest, TheSoftLimitOfOpenFilesIsRaised) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{256, before.rlim_max};
  ASSERT_LT(low.rlim_cur, low.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  LaunchReady("4");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit child{};
  ASSERT_EQ(::prlimit(child_->pid(), RLIMIT_NOFILE, nullptr, &child), 0);
  EXPECT_EQ(child.rlim_cur, before.rlim_max);
}

TEST(DescriptorLimitTest, ConnectionsLeaveRoomForOtherDescriptors) {
  EXPECT_EQ(ConnectionsWithin(20000, 8192, 512), 8192);
  EXPECT_EQ(ConnectionsWithin(4096, 8192, 512), 3584);
  EXPECT_EQ(ConnectionsWithin(600, 8192, 512), 300);
  EXPECT_EQ(ConnectionsWithin(0, 8192, 512), 1);
  EXPECT_EQ(ConnectionsWithin(std::numeric_limits<int>::max(), 8192, 512), 8192);
}

TEST_F(AppTest, SigtermDrainsAndExits) {
  for (const int signal : {SIGTERM, SIGINT}) {
    LaunchReady("4");
    child_->Signal(signal);
    EXPECT_EQ(child_->WaitExit(kLimit), 0);
  }
}

TEST_F(AppTest, WhatCannotGoOnIsStoppedAndExits) {
  LaunchReady("6");
  EXPECT_EQ(child_->WaitExit(kLimit), 1);
}

TEST_F(AppTest, WhatHasFinishedIsStoppedAndExitsWithoutASignal) {
  LaunchReady("11");
  EXPECT_EQ(child_->WaitExit(kLimit), 0);
}

TEST_F(AppTest, ASecondSignalStopsADrainInProgress) {
  LaunchReady("2");
  child_->Signal(SIGTERM);
  // The drain lasts 30 s unless Stop ends it. The process still answers during the drain.
  EXPECT_EQ(HttpGet(addresses_["http"], "/healthz").status, 200);
  EXPECT_EQ(child_->WaitExit(std::chrono::milliseconds(100)), std::nullopt);
  child_->Signal(SIGINT);
  EXPECT_EQ(child_->WaitExit(std::chrono::seconds(20)), 0);
}

TEST_F(AppTest, ASignalEndsASlowStart) {
  Launch({"--set", "model.path=m", "--set", "max_attempts=5"});
  EXPECT_EQ(child_->WaitExit(std::chrono::milliseconds(50)), std::nullopt);
  child_->Signal(SIGTERM);
  EXPECT_EQ(child_->WaitExit(kLimit), 128 + SIGTERM);
}

TEST_F(AppTest, ExitStatusesTellWhatWasWrong) {
  EXPECT_EQ(ExitOf({"--help"}), 0);
  EXPECT_THAT(output_, HasSubstr("--dump-default-config"));
  EXPECT_EQ(ExitOf({"--dump-default-config"}), 0);
  EXPECT_THAT(output_, HasSubstr("heartbeat_ms: 500"));
  EXPECT_EQ(ExitOf({"--no-such-flag"}), 2);
  EXPECT_EQ(ExitOf({"--set", "model.path=m", "--set", "policy=worst"}), 2);
  EXPECT_EQ(ExitOf({"--set", "model.path=m", "--set", "process.log.modules.kv=loud"}), 2);
  EXPECT_EQ(ExitOf({"--set", "model.path=m", "--set", "max_attempts=3"}), 1);
  EXPECT_EQ(ExitOf({"--set", "model.path=m", "--set", "max_attempts=12"}), 2);
  EXPECT_EQ(ExitOf({"--set", "model.path=m", "--set", "process.http_listen=nowhere"}), 2);
  EXPECT_EQ(ExitOf({"--set", "model.path=m", "--set", "process.http_listen=127.0.0.1:99999"}), 2);
}

TEST_F(AppTest, ABodyThatIsAllowedCanAlwaysWait) {
  const std::string limits = "process.http_limits.max_";
  const auto exit_of = [&](int body, int waiting) {
    return ExitOf({"--set",
                   "model.path=m",
                   "--set",
                   fmt::format("{}body_bytes={}", limits, body),
                   "--set",
                   fmt::format("{}waiting_body_bytes={}", limits, waiting),
                   "--set",
                   "max_attempts=3"});
  };
  EXPECT_EQ(exit_of(2049, 2048), 2);
  EXPECT_EQ(exit_of(2048, 2048), 1) << "the sample cannot start with max_attempts 3";
}

TEST_F(AppTest, EveryProcessTellsOfItself) {
  LaunchReady("4");
  const std::string text = HttpGet(addresses_["http"], "/metrics").body;
  EXPECT_THAT(text, HasSubstr(fmt::format("version=\"{}\"", Version())));
  const double now = static_cast<double>(std::time(nullptr));
  EXPECT_GT(Metric("process_start_time_seconds"), now - 3600);
  EXPECT_LE(Metric("process_start_time_seconds"), now + 1);
  const double cpu = Metric("process_cpu_seconds_total");
  EXPECT_GT(cpu, 0);
  EXPECT_GT(Metric("process_cpu_seconds_total"), cpu);
  EXPECT_GT(Metric("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(Metric("process_virtual_memory_bytes"), Metric("process_resident_memory_bytes"));
  const double open = Metric("process_open_fds");
  EXPECT_GT(open, 3);
  EXPECT_GT(Metric("process_max_fds"), open);
  const RawConnection connection(addresses_["http"]);
  const Time deadline = SteadyClock().Now() + kLimit;
  while (Metric("process_open_fds") <= open && SteadyClock().Now() < deadline) continue;
  EXPECT_LT(SteadyClock().Now(), deadline) << "the connection is not counted";
  EXPECT_EQ(Metric("baton_log_dropped_total"), 0);
}

TEST_F(AppTest, TheVersionIsThatOfTheProject) {
  EXPECT_EQ(ExitOf({"--version"}), 0);
  EXPECT_EQ(output_, fmt::format("sample {}\n", Version()));
  EXPECT_THAT(std::string(Version()),
              ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+([-+][-.0-9a-z]+)?"));
}

TEST_F(AppTest, AFullStderrHoldsUpNothing) {
  FullPipe pipe;
  log_file_ = pipe.path();
  LaunchReady("7");
  EXPECT_EQ(HttpGet(addresses_["http"], "/healthz").status, 200);
  EXPECT_GT(Metric("baton_log_dropped_total"), 0);
  EXPECT_THAT(pipe.ReadUntil("line 40000 of 40000\n"), HasSubstr(" messages dropped here: "));
  child_->Signal(SIGTERM);
  EXPECT_EQ(child_->WaitExit(kLimit), 0);
}

TEST_F(AppTest, NobodyHasToReadStderrForAnEnd) {
  FullPipe pipe;
  log_file_ = pipe.path();
  // Each process waits for a reader as long as it may. They all wait at the same time.
  struct End {
    std::string what;
    std::unique_ptr<ChildProcess> child;
    int status;
  };
  std::vector<End> ends;
  LaunchReady("4");
  child_->Signal(SIGTERM);
  ends.push_back({"after a drain", std::move(child_), 0});
  Launch({"--no-such-flag"});
  ends.push_back({"--no-such-flag", std::move(child_), 2});
  // 192.0.2.0/24 is for documentation (RFC 5737): no machine has this address.
  for (const auto& [setting, status] :
       std::map<std::string, int>{{"policy=worst", 2},
                                  {"process.http_listen=nowhere", 2},
                                  {"process.http_listen=192.0.2.1:0", 1},
                                  {"max_attempts=9", 128 + SIGABRT},
                                  {"max_attempts=10", 128 + SIGABRT}}) {
    // QEMU's user mode itself writes to stderr when its program aborts.
    if (status == 128 + SIGABRT && std::getenv("QEMU_LD_PREFIX") != nullptr) continue;
    Launch({"--set", "model.path=m", "--set", setting});
    ends.push_back({setting, std::move(child_), status});
  }
  LaunchSample("5");
  child_->Signal(SIGTERM);
  ends.push_back({"while it starts", std::move(child_), 128 + SIGTERM});
  for (const End& end : ends) EXPECT_EQ(end.child->WaitExit(kLimit), end.status) << end.what;
}

TEST_F(AppTest, AFullStdoutHoldsUpNothing) {
  FullPipe pipe;
  const TemporaryFolder folder;
  const std::string log = folder.Write("log", "");
  const std::string sample = BinaryFolder() + "/sample_service";
  auto child = ChildProcess::Start(
      {{"/bin/sh",
        "-c",
        fmt::format("exec {} --set model.path=m >{} 2>{}", sample, pipe.path(), log)},
       ""});
  ASSERT_TRUE(child.ok()) << child.status();
  const auto logged = [&] {
    std::ifstream file(log);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const Time deadline = SteadyClock().Now() + kLimit;
  while (logged().find("app: ready {") == std::string::npos && SteadyClock().Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_THAT(logged(), HasSubstr("nobody reads stdout"));
  ASSERT_THAT(logged(), HasSubstr("app: ready {"));
  EXPECT_THAT(pipe.ReadUntil("}\n"), ::testing::StartsWith("ready {\"grpc\""));
  (*child)->Signal(SIGTERM);
  EXPECT_EQ((*child)->WaitExit(kLimit), 0);
}

TEST_F(AppTest, ACrashWritesTheLogBeforeItEnds) {
  for (const auto& [attempts, last_words] : std::map<std::string, std::string>{
           {"8", "line 40000 of 40000\n"},
           {"9", "invariant broken: config.max_attempts() != 9 (max_attempts is 9)\n"},
           {"10", "error log: the process ends: uncaught exception: max_attempts is 10\n"}}) {
    const TemporaryFolder folder;
    log_file_ = folder.Write("log", "");
    LaunchSample(attempts);
    EXPECT_EQ(child_->WaitExit(kLimit), 128 + SIGABRT);
    std::ifstream log(log_file_);
    const std::string text{std::istreambuf_iterator<char>(log), {}};
    EXPECT_THAT(text, HasSubstr("line 40000 of 40000\n")) << attempts;
    EXPECT_THAT(text, HasSubstr(last_words));
  }
}

TEST_F(AppTest, TheDestructorEndsTheChild) {
  LaunchReady("4");
  const pid_t pid = child_->pid();
  child_.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST(ChildProcessTest, SaysWhyItIsNotReady) {
  EXPECT_EQ(ChildProcess::Start({{"/no/such/binary"}, ""}).status().code(), StatusCode::kNotFound);
  auto ends = ChildProcess::Start({{"/bin/sh", "-c", "echo hello; exit 3"}, ""});
  ASSERT_TRUE(ends.ok());
  const auto ready = (*ends)->WaitReady(kLimit);
  EXPECT_EQ(ready.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(Message(ready.status())), HasSubstr("status 3"));
  auto silent = ChildProcess::Start({{"/bin/sleep", "1000"}, ""});
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ((*silent)->WaitReady(std::chrono::milliseconds(20)).status().code(),
            StatusCode::kDeadlineExceeded);
  (*silent)->Signal(SIGKILL);
  EXPECT_EQ((*silent)->WaitExit(kLimit), 128 + SIGKILL);
}

}  // namespace
}  // namespace baton
