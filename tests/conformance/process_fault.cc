#include "tests/conformance/process_fault.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include "common/base/clock.h"

namespace baton {
namespace {

// Waits until that many blocks are in quarantine, for at most ten seconds. False: they are not.
bool WaitForQuarantine(const PeerRecorder& recorder, uint32_t blocks) {
  const SteadyClock clock;
  const Time until = clock.Now() + std::chrono::seconds(10);
  while (recorder.stats().quarantined_blocks != blocks && clock.Now() < until) {
    std::this_thread::yield();
  }
  return recorder.stats().quarantined_blocks == blocks;
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProcessFaultTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoppedSenderTest);

ProcessFaultTest::ProcessFaultTest()
    : folder_(std::filesystem::read_symlink("/proc/self/exe").parent_path().string()) {}

ProcessFaultTest::~ProcessFaultTest() {
  if (victim_ == 0) return;
  SignalVictim(SIGKILL);
  ::waitpid(victim_, nullptr, 0);
}

UniqueFd ProcessFaultTest::StartVictim(const char* role, bool hold_copies) {
  const std::string program = folder_ + "/kv_peer";
  if (::access(program.c_str(), X_OK) != 0) {
    throw std::runtime_error(
        program +
        " is not there: this test runs it as the other process; build the target kv_peer");
  }
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  const std::string control = std::to_string(fds[1]);
  victim_ = ::fork();
  if (victim_ == 0) {
    ::fcntl(fds[1], F_SETFD, 0);
    ::execl(program.c_str(),
            "kv_peer",
            role,
            GetParam().survivor.transport.c_str(),
            GetParam().victim_device.c_str(),
            control.c_str(),
            hold_copies ? "hold" : "run",
            nullptr);
    ::_exit(127);
  }
  ::close(fds[1]);
  return UniqueFd(fds[0]);
}

void ProcessFaultTest::SignalVictim(int signal) const {
  ::kill(victim_, signal);
}

void ProcessFaultTest::ExpectLost(PeerRecorder& recorder) {
  EXPECT_TRUE(recorder.logs.WaitEnd(kPeerSession));
  EXPECT_EQ(recorder.logs.Get(kPeerSession).status.code(), StatusCode::kUnavailable)
      << recorder.logs.Get(kPeerSession).status;
}

TEST_P(ProcessFaultTest, AMissingProgramIsNamed) {
  folder_ = "/nowhere";
  EXPECT_THAT([&] { StartVictim("sender", false); },
              testing::ThrowsMessage<std::runtime_error>(
                  testing::StartsWith("/nowhere/kv_peer is not there: ")));
}

TEST_P(ProcessFaultTest, AProgramThatEndsAtOnceIsNamed) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  ::close(fds[1]);
  EXPECT_THAT([&] { RunPeerReceiver(GetParam().survivor, UniqueFd(fds[0]), {}); },
              testing::ThrowsMessage<std::runtime_error>(
                  "the sender of the other process ended before its HELLO"));
}

TEST_P(ProcessFaultTest, TheSenderOutlivesItsReceiver) {
  RunPeerSender(GetParam().survivor, StartVictim("receiver", false), [&](PeerRecorder& recorder) {
    // Before the first write the hand-off would be refused, and could go to another receiver.
    ASSERT_TRUE(WaitForBytes(recorder));
    SignalVictim(GetParam().signal);
    ExpectLost(recorder);
  });
}

TEST_P(ProcessFaultTest, TheReceiverOutlivesItsSender) {
  RunPeerReceiver(GetParam().survivor, StartVictim("sender", true), [&](PeerRecorder& recorder) {
    ASSERT_TRUE(WaitForBytes(recorder));
    SignalVictim(GetParam().signal);
    if (GetParam().signal == SIGSTOP && GetParam().needs_peer_to_fence) {
      EXPECT_TRUE(WaitForQuarantine(recorder, 4));
      EXPECT_EQ(recorder.logs.Get(kPeerSession).ends, 0) << "blocks of a stopped sender came back";
      SignalVictim(SIGKILL);
    }
    ExpectLost(recorder);
    EXPECT_TRUE(WaitForQuarantine(recorder, 0));
  });
}

// A sender that was only stopped confirms the close when it continues.
TEST_P(StoppedSenderTest, EndsTheQuarantineWhenItGoesOn) {
  RunPeerReceiver(GetParam().survivor, StartVictim("sender", false), [&](PeerRecorder& recorder) {
    ASSERT_TRUE(WaitForBytes(recorder));
    SignalVictim(SIGSTOP);
    EXPECT_TRUE(WaitForQuarantine(recorder, 4));
    EXPECT_EQ(recorder.logs.Get(kPeerSession).ends, 0);
    SignalVictim(SIGCONT);
    ExpectLost(recorder);
  });
}

}  // namespace baton
