#pragma once

#include <sys/types.h>

#include <csignal>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "common/base/unique_fd.h"
#include "tests/conformance/transfer_peer.h"

namespace baton {

struct ProcessFault {
  PeerSetup survivor;
  std::string victim_device;
  int signal = SIGKILL;
  // A stopped sender may still write: the receiver cannot fence it without the sender's help.
  bool needs_peer_to_fence = false;
};

inline void PrintTo(const ProcessFault& fault, std::ostream* out) {
  *out << fault.survivor.transport << (fault.signal == SIGKILL ? "Killed" : "Stopped");
}

// One of the two sides is another process (kv_peer, in the folder of the test program), which is
// killed or stopped in the middle of a hand-off. The survivor gets its blocks back, but only once
// this is safe.
class ProcessFaultTest : public testing::TestWithParam<ProcessFault> {
 protected:
  ProcessFaultTest();
  ~ProcessFaultTest() override;
  // Starts the other side and returns this side's end of the control socket. Throws if kv_peer is
  // not in `folder_`.
  UniqueFd StartVictim(const char* role, bool hold_copies);
  void SignalVictim(int signal) const;
  // Expects that the session ends with Unavailable, after the victim got its signal.
  static void ExpectLost(PeerRecorder& recorder);

  std::string folder_;  // of kv_peer: the folder of the test program
  pid_t victim_ = 0;
};

// For transports that need the peer's help to fence.
class StoppedSenderTest : public ProcessFaultTest {};

}  // namespace baton
