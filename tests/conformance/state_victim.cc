#include "tests/conformance/state_victim.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "tests/conformance/state_peer.h"

namespace baton {

int RunStateVictim(const std::vector<std::string>& args) {
  if (args.size() != 6) return 2;
  const std::string& state = args[4];
  const int signal = std::atoi(args[5].c_str());
  StatePeer::Setup setup;
  setup.is_sender = args[0] == "state-sender";
  setup.transport = args[1];
  setup.course = static_cast<HandoffCourse>(std::atoi(args[3].c_str()));
  bool is_done = false;
  std::atomic<StatePeer*> self = nullptr;
  setup.on_state = [&](std::string_view now) {
    if (now != state || std::exchange(is_done, true)) return;
    ::kill(::getpid(), signal);
    // It was stopped, and goes on.
    if (StatePeer* const peer = self; peer != nullptr) peer->ReleaseCopies();
  };
  try {
    StatePeer peer(std::move(setup));
    self = &peer;
    peer.Begin(UniqueFd(std::atoi(args[2].c_str())),
               state == "none" ? kNextSession : kDisturbedSession);
    const std::string problem = peer.WaitQuiet(state == "none" ? kNextSession : kDisturbedSession);
    if (problem.empty()) {
      // The sender's session may still wait for this side's last message.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (state != "none" || (args[0] == "state-sender" || peer.CompareContent().empty())) return 0;
    }
    std::fputs((problem + "\n").c_str(), stderr);
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
  }
  return 3;
}

}  // namespace baton
