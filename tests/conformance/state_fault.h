#pragma once

#include <sys/types.h>

#include <csignal>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/state_peer.h"

namespace baton {

// The process of one side ends or stops in a state of its session.
struct StateFault {
  std::string transport;
  bool victim_is_sender = false;
  std::string state;  // Name of SenderState or ReceiverState
  int signal = SIGKILL;
};

inline void PrintTo(const StateFault& fault, std::ostream* out) {
  *out << fault.transport << (fault.victim_is_sender ? "Sender" : "Receiver")
       << (fault.signal == SIGKILL ? "KilledWhen" : "StoppedWhen") << fault.state;
}

// Every state of a session but fencing and quarantine, with both signals.
std::vector<StateFault> StateFaults(const std::string& transport);
// Fencing and quarantine, which need a device that does not end its copies (cuda_ipc and nccl, on
// fake GPUs), with both signals.
std::vector<StateFault> HeldStateFaults();

// One of the two sides is another process (kv_peer, in the folder of the test program). The other
// side's session must end, with nothing in quarantine, and it must then complete a hand-off with a
// new process of the victim's worker. A victim that was only stopped must end its session, too.
class StateFaultTest : public testing::TestWithParam<StateFault> {
 protected:
  ~StateFaultTest() override;
  // Starts the other side, which gets `signal` in `state`, and returns this side's end of the
  // control socket.
  UniqueFd StartVictim(HandoffCourse course, const std::string& state);
  // Waits until the victim was killed or has stopped. False: it ended by itself.
  bool WaitForSignal();

  pid_t victim_ = 0;
};

}  // namespace baton
