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
  // A stopped sender may still write: the receiver cannot fence it by itself.
  bool needs_peer_to_fence = false;
};

inline void PrintTo(const ProcessFault& fault, std::ostream* out) {
  *out << fault.survivor.transport << (fault.signal == SIGKILL ? "Killed" : "Stopped");
}

// One of the two sides is another process (kv_peer, beside the test's program), which dies or stops
// in the middle of a hand-off. The survivor gets its blocks back, but not before that is safe.
class ProcessFaultTest : public testing::TestWithParam<ProcessFault> {
 protected:
  ProcessFaultTest();
  ~ProcessFaultTest() override;
  // Starts the other side; gives this side's end of the control socket. Throws when kv_peer is not
  // in `folder_`.
  UniqueFd StartVictim(const char* role, bool hold_copies);
  void SignalVictim(int signal) const;
  // The victim has got its signal: the session ends, as the peer is gone.
  static void ExpectLost(PeerRecorder& recorder);

  std::string folder_;  // of kv_peer: that of the test's program
  pid_t victim_ = 0;
};

// Of transports that need the peer to fence.
class StoppedSenderTest : public ProcessFaultTest {};

}  // namespace baton
