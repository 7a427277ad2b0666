#include "tests/e2e/mpirun_command.h"

#include <fmt/format.h>

namespace baton {
namespace {

std::vector<std::string> Command(int ranks,
                                 const std::vector<std::string>& options,
                                 const std::string& program,
                                 const std::vector<std::string>& settings) {
  std::vector<std::string> command = {
      kMpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(),
                 {"-n",
                  fmt::format("{}", ranks),
                  fmt::format("{}/{}", BATON_BINARY_FOLDER, program),
                  "--set",
                  "model.path=" BATON_TEST_MODEL});
  for (const std::string& setting : settings) {
    command.emplace_back("--set");
    command.push_back(setting);
  }
  return command;
}

}  // namespace

std::vector<std::string> MpirunCommand(int ranks, const std::vector<std::string>& settings) {
  return Command(ranks, {}, "baton-decode", settings);
}

std::vector<std::string> MpirunCommand(const HostRanks& place,
                                       const std::vector<std::string>& settings) {
  const std::vector<std::string> options = {"--mca",
                                            "plm_rsh_agent",
                                            place.agent,
                                            "--mca",
                                            "btl",
                                            "self,tcp",
                                            "--mca",
                                            "btl_tcp_if_include",
                                            place.network,
                                            "--mca",
                                            "oob_tcp_if_include",
                                            place.network,
                                            "-H",
                                            place.hosts};
  return Command(place.ranks, options, place.program, settings);
}

}  // namespace baton
