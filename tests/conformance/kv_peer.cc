// One side of a hand-off, which a test kills or stops. Usage:
//   kv_peer sender|receiver TRANSPORT DEVICE CONTROL_FD hold|run
//   kv_peer state-sender|state-receiver TRANSPORT CONTROL_FD COURSE STATE SIGNAL

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/conformance/state_victim.h"
#include "tests/conformance/transfer_peer.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]).starts_with("state-")) {
    return baton::RunStateVictim({argv + 1, argv + argc});
  }
  if (argc != 6) return 2;
  const baton::PeerSetup setup{argv[2], argv[3], std::string(argv[5]) == "hold"};
  baton::UniqueFd socket(std::atoi(argv[4]));
  const auto wait = [](baton::PeerRecorder&) {
    while (true) ::pause();
  };
  if (std::string(argv[1]) == "sender") {
    baton::RunPeerSender(setup, std::move(socket), wait);
  } else {
    baton::RunPeerReceiver(setup, std::move(socket), wait);
  }
  return 0;
}
