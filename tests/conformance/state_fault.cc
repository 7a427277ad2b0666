#include "tests/conformance/state_fault.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "tests/conformance/state_victim.h"

namespace baton {
namespace {

struct StateCourse {
  const char* state;
  HandoffCourse course;
};

constexpr StateCourse kSenderStates[] = {
    {"offered", HandoffCourse::kCommits},
    {"refused", HandoffCourse::kIsRefused},
    {"streaming", HandoffCourse::kCommits},
    {"sealed", HandoffCourse::kCommits},
    {"draining", HandoffCourse::kIsAborted},
    {"ended", HandoffCourse::kCommits},
};
constexpr StateCourse kReceiverStates[] = {
    {"pending", HandoffCourse::kCommits},
    {"receiving", HandoffCourse::kCommits},
    {"closing", HandoffCourse::kCommits},
    {"committed", HandoffCourse::kCommits},
    {"draining", HandoffCourse::kIsAborted},
    {"released", HandoffCourse::kIsAborted},
    {"refused", HandoffCourse::kIsRefused},
    {"withdrawn", HandoffCourse::kIsWithdrawn},
};

HandoffCourse CourseTo(const StateFault& fault) {
  // HeldStateFaults.
  if (fault.state == "fencing" || fault.state == "quarantined") return HandoffCourse::kHangs;
  const std::span<const StateCourse> states =
      fault.victim_is_sender ? std::span<const StateCourse>(kSenderStates) : kReceiverStates;
  for (const StateCourse& known : states) {
    if (fault.state == known.state) return known.course;
  }
  return HandoffCourse::kCommits;
}

size_t CountOpenFiles() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StateFaultTest);

std::vector<StateFault> StateFaults(const std::string& transport) {
  std::vector<StateFault> faults;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const StateCourse& known : kSenderStates) {
      faults.push_back({transport, true, known.state, signal});
    }
    for (const StateCourse& known : kReceiverStates) {
      faults.push_back({transport, false, known.state, signal});
    }
  }
  return faults;
}

std::vector<StateFault> HeldStateFaults() {
  std::vector<StateFault> faults;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const char* const transport : {"cuda_ipc", "nccl"}) {
      faults.push_back({transport, true, "fencing", signal});
      faults.push_back({transport, true, "quarantined", signal});
    }
    // Over nccl the receiver closes its windows without the sender.
    faults.push_back({"cuda_ipc", false, "quarantined", signal});
  }
  return faults;
}

StateFaultTest::~StateFaultTest() {
  if (victim_ == 0) return;
  ::kill(victim_, SIGKILL);
  ::waitpid(victim_, nullptr, 0);
}

UniqueFd StateFaultTest::StartVictim(HandoffCourse course, const std::string& state) {
  const std::string program =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kv_peer").string();
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const std::vector<std::string> args = {
      program,
      GetParam().victim_is_sender ? "state-sender" : "state-receiver",
      GetParam().transport,
      std::to_string(fds[1]),
      std::to_string(static_cast<int>(course)),
      state,
      std::to_string(GetParam().signal)};
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  victim_ = ::fork();
  if (victim_ == 0) {
    ::fcntl(fds[1], F_SETFD, 0);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(fds[1]);
  return UniqueFd(fds[0]);
}

bool StateFaultTest::WaitForSignal() {
  int status = 0;
  for (int i = 0; i < 2000; ++i) {
    const pid_t changed = ::waitpid(victim_, &status, WUNTRACED | WNOHANG);
    if (changed == victim_) {
      if (!WIFSTOPPED(status)) victim_ = 0;
      return WIFSTOPPED(status) || WIFSIGNALED(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST_P(StateFaultTest, TheOtherSideEndsItsSessionAndServesTheNextProcess) {
  const StateFault& fault = GetParam();
  std::atomic<bool> held = fault.victim_is_sender && CourseTo(fault) == HandoffCourse::kIsAborted;
  StatePeer::Setup setup{!fault.victim_is_sender, fault.transport, CourseTo(fault), {}};
  // A receiver that does not read keeps the writes of an aborted session outstanding.
  setup.on_state = [&held](std::string_view state) {
    for (int i = 0; state == "receiving" && held && i < 1000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  StatePeer peer(std::move(setup));
  const size_t files = CountOpenFiles();

  peer.Begin(StartVictim(CourseTo(fault), fault.state), kDisturbedSession);
  ASSERT_TRUE(WaitForSignal()) << "the victim's session was never in the state " << fault.state;
  held = false;
  peer.ReleaseCopies();
  // What a stopped sender's device still copies can end only when the sender goes on.
  const bool needs_victim = fault.transport == "cuda_ipc" && fault.victim_is_sender;
  if (fault.signal == SIGSTOP && needs_victim) ::kill(victim_, SIGCONT);
  EXPECT_EQ(peer.WaitQuiet(kDisturbedSession), "");
  if (fault.signal == SIGSTOP) {
    ::kill(victim_, SIGCONT);
    int status = 0;
    ::waitpid(std::exchange(victim_, 0), &status, 0);
    EXPECT_EQ(status, 0) << "the stopped process did not end its session when it went on";
  }
  peer.Disconnect();

  peer.SetCourse(HandoffCourse::kCommits);
  peer.Begin(StartVictim(HandoffCourse::kCommits, "none"), kNextSession);
  EXPECT_EQ(peer.WaitQuiet(kNextSession), "");
  EXPECT_TRUE(peer.committed(kNextSession));
  if (fault.victim_is_sender) {
    EXPECT_EQ(peer.CompareContent(), "");
  }
  int status = 0;
  ::waitpid(std::exchange(victim_, 0), &status, 0);
  EXPECT_EQ(status, 0) << "the next process did not complete the hand-off";
  peer.Disconnect();
  WaitUntil([&] { return CountOpenFiles() == files; });
  EXPECT_EQ(CountOpenFiles(), files) << "files were leaked";
}

}  // namespace baton
