#include <cstdio>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>

#include "cli/cluster_client.h"
#include "cli/commands.h"
#include "cli/format.h"
#include "cli/report.h"
#include "cli/router_endpoint.h"
#include "cli/server_flag.h"
#include "cli/status_table.h"
#include "common/app/signal_waiter.h"

namespace baton {
namespace {

constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

struct StatusFlags {
  std::string admin = kDefaultAdmin;
  EndpointFlags endpoint;
  bool watch = false;
  bool json = false;
  bool transfers = false;
  double interval_seconds = 1;
};

Status Show(const StatusFlags& flags, ClusterClient& client) {
  BATON_ASSIGN_OR_RETURN(const ClusterSummary cluster, client.GetStatus());
  fmt::print("{}{}",
             flags.watch && !flags.json ? kClearScreen : "",
             flags.json        ? cluster.json + "\n"
             : flags.transfers ? FormatTransfers(cluster)
                               : FormatCluster(cluster));
  std::fflush(stdout);
  return OkStatus();
}

Status RunStatus(const StatusFlags& flags) {
  const SignalWaiter interrupts({SIGINT, SIGTERM});
  BATON_ASSIGN_OR_RETURN(const RouterEndpoint endpoint,
                         EndpointOf(flags.admin, flags.endpoint, kOperatorKeyFile));
  ClusterClient client(endpoint);
  do {
    BATON_RETURN_IF_ERROR(Show(flags, client));
  } while (flags.watch && interrupts.Wait(FromSeconds(flags.interval_seconds)) == 0);
  return OkStatus();
}

struct DrainFlags {
  std::string admin = kDefaultAdmin;
  EndpointFlags endpoint;
  std::string worker;
  bool keep = false;
};

Status Drain(const DrainFlags& flags) {
  BATON_ASSIGN_OR_RETURN(const RouterEndpoint endpoint,
                         EndpointOf(flags.admin, flags.endpoint, kOperatorKeyFile));
  BATON_RETURN_IF_ERROR(ClusterClient(endpoint).Drain(flags.worker, flags.keep));
  fmt::print("{} finishes its requests and leaves; then its process {}\n",
             flags.worker,
             flags.keep ? "stays without work until SIGTERM" : "exits with status 0");
  return OkStatus();
}

}  // namespace

void AddStatusCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<StatusFlags>();
  CLI::App* command = app.add_subcommand("status", "Show workers, load, caches and transfers");
  AddAdminFlag(*command, flags->admin);
  AddEndpointFlags(*command, flags->endpoint);
  CLI::Option* watch = command->add_flag("--watch", flags->watch, "refresh until Ctrl-C");
  command->add_flag("--json", flags->json, "print JSON (ClusterStatus of proto/admin.proto)");
  command->add_flag("--transfers",
                    flags->transfers,
                    "show the KV transfers of each pair: faults, open hand-offs, and why faster "
                    "transports are not in use");
  command->add_option("--interval", flags->interval_seconds, "seconds between two refreshes")
      ->check(CLI::Range(0.1, 3600.0))
      ->needs(watch);
  command->callback([flags, &exit_status] { exit_status = Report(RunStatus(*flags)); });
}

void AddDrainCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<DrainFlags>();
  CLI::App* command = app.add_subcommand(
      "drain", "Drain a worker: it finishes its requests, leaves, and exits with status 0");
  command->add_option("worker", flags->worker, "the worker's id in `baton status`")->required();
  AddAdminFlag(*command, flags->admin);
  AddEndpointFlags(*command, flags->endpoint);
  command->add_flag("--keep", flags->keep, "the process stays, without work, until SIGTERM");
  command->callback([flags, &exit_status] { exit_status = Report(Drain(*flags)); });
}

}  // namespace baton
