#pragma once

#include <string>
#include <vector>

namespace baton {

inline constexpr const char* kMpirun = "/usr/bin/mpirun";

// The command that lets mpirun start `ranks` ranks of a decode worker with the test's model.
std::vector<std::string> MpirunCommand(int ranks, const std::vector<std::string>& settings);

// Where the ranks of a worker are: hosts that are all simulated on this machine, and share no
// memory.
struct HostRanks {
  int ranks = 2;
  std::string hosts;                     // "a:2,b:1"
  std::string program = "baton-decode";  // or "baton-prefill"
  std::string network = "lo";            // the device or the addresses of MPI's messages
  // The command that starts another command on another host (plm_rsh_agent).
  std::string agent = "tests/e2e/simulated_host.sh";
};
// The same for ranks on several hosts. MPI's messages go over tcp, also between ranks of one host.
std::vector<std::string> MpirunCommand(const HostRanks& place,
                                       const std::vector<std::string>& settings);

}  // namespace baton
