#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/rank_agent.h"
#include "cli/report.h"
#include "common/app/signal_waiter.h"
#include "common/base/host_port.h"
#include "common/metrics/metrics.h"
#include "common/security/cluster_proofs.h"

namespace baton {
namespace {

constexpr Duration kNoWait{};

struct HostFlags {
  std::string listen = "127.0.0.1:7092";
  std::string secret_file;
  int port = 7092;
  int wait_seconds = 600;
  std::vector<std::string> command;
};

StatusOr<std::unique_ptr<ClusterProofs>> ProofsOf(const HostFlags& flags,
                                                  MetricsRegistry& metrics) {
  BATON_ASSIGN_OR_RETURN(ClusterSecret secret, ClusterSecret::Load(flags.secret_file));
  return std::make_unique<ClusterProofs>(std::move(secret), std::make_shared<Refusals>(metrics));
}

Status Serve(const HostFlags& flags) {
  MetricsRegistry metrics;
  BATON_ASSIGN_OR_RETURN(const auto proofs, ProofsOf(flags, metrics));
  const SignalWaiter signals({SIGTERM, SIGINT});
  return ServeRanks(
      flags.listen,
      *proofs,
      [](const std::string& address) {
        fmt::print("ready {{\"ranks\":\"{}\"}}\n", address);
        std::fflush(stdout);
      },
      [&] { return signals.Wait(kNoWait) > 0; });
}

// mpirun's remote shell: the first word is the host.
StatusOr<int> Run(const HostFlags& flags) {
  if (flags.command.size() < 2) {
    return InvalidArgument("a host and a command are missing; mpirun gives them");
  }
  MetricsRegistry metrics;
  BATON_ASSIGN_OR_RETURN(const auto proofs, ProofsOf(flags, metrics));
  const HostPort address = {flags.command.front(), static_cast<uint16_t>(flags.port)};
  return RunOnHost(address.ToString(),
                   *proofs,
                   {flags.command.begin() + 1, flags.command.end()},
                   std::chrono::seconds(flags.wait_seconds));
}

}  // namespace

void AddHostCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<HostFlags>();
  CLI::App* host = app.add_subcommand(
      "host", "Let mpirun start the ranks of a worker on other hosts, without ssh");
  host->require_subcommand(1);
  CLI::App* serve =
      host->add_subcommand("serve", "Wait on this host for an mpirun, and start ranks for it");
  CLI::App* run = host->add_subcommand(
      "run", "The remote shell of mpirun (--mca plm_rsh_agent \"baton host run …\")");
  for (CLI::App* one : {serve, run}) {
    one->add_option("--secret-file", flags->secret_file, "file with the cluster's secret")
        ->required();
  }
  serve->add_option("--listen", flags->listen, "host:port to wait at");
  run->add_option("--port", flags->port, "port of the agents")->check(CLI::Range(1, 65535));
  run->add_option("--wait-seconds", flags->wait_seconds, "how long to wait for an agent to start")
      ->check(CLI::Range(0, 86400));
  run->prefix_command();
  serve->callback([flags, &exit_status] {
    const Status served = Serve(*flags);
    exit_status = served.ok() ? 0 : Report(served);
  });
  run->callback([flags, run, &exit_status] {
    flags->command = run->remaining();
    const StatusOr<int> ended = Run(*flags);
    exit_status = ended.ok() ? *ended : Report(ended.status());
  });
}

}  // namespace baton
