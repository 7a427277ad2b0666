#include "cli/local_cluster.h"

#include <signal.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <thread>
#include <utility>

#include "cli/cluster_client.h"

namespace baton {
namespace {

constexpr auto kJoinPoll = std::chrono::milliseconds(20);

Time Now() {
  return SteadyClock().Now();
}

// The last lines of a log, indented, each preceded by a line break. Empty when there is no log.
std::string LastLines(const std::string& path) {
  constexpr std::streamoff kMaxBytes = 8192;
  constexpr size_t kMaxLines = 8;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kMaxBytes));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > kMaxLines) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += "\n    " + line;
  return text;
}

}  // namespace

StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(const LocalClusterOptions& options,
                                                            Duration limit) {
  const Time deadline = Now() + limit;
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options));
  if (options.secret_file.empty()) {
    BATON_ASSIGN_OR_RETURN(cluster->own_secret_, TemporarySecretFile::Create());
  }
  BATON_RETURN_IF_ERROR(cluster->LaunchRouter());
  BATON_RETURN_IF_ERROR(cluster->WaitReady(cluster->router(), deadline));
  const std::vector<WorkerPlan> plans = PlanWorkers(options.workers);
  size_t ready = 1;
  for (const WorkerPlan& plan : plans) {
    if (plan.after_others) BATON_RETURN_IF_ERROR(cluster->WaitAllReady(ready, deadline));
    BATON_RETURN_IF_ERROR(cluster->LaunchWorker(plan));
  }
  BATON_RETURN_IF_ERROR(cluster->WaitAllReady(ready, deadline));
  BATON_RETURN_IF_ERROR(cluster->WaitJoined(static_cast<int>(plans.size()), deadline - Now()));
  return cluster;
}

Status LocalCluster::WaitAllReady(size_t& ready, Time deadline) {
  for (; ready < members_.size(); ++ready) {
    BATON_RETURN_IF_ERROR(WaitReady(members_[ready], deadline));
  }
  return OkStatus();
}

Status LocalCluster::Launch(const std::string& name, std::vector<std::string> command) {
  ChildOptions child;
  child.command = std::move(command);
  if (!options_.log_folder.empty()) child.log_file = options_.log_folder + "/" + name + ".log";
  auto process = ChildProcess::Start(child);
  if (!process.ok()) return Annotate(process.status(), name);
  members_.push_back({name, {}, *std::move(process)});
  return OkStatus();
}

Status LocalCluster::LaunchRouter() {
  std::vector<std::string> command = {options_.binary_folder + "/baton-router"};
  std::vector<std::string> settings = {
      QuotedOverride("router_id", "router"),
      QuotedOverride("model.path", options_.model),
      QuotedOverride("listen", options_.listen),
      QuotedOverride("admin_listen", options_.admin),
      QuotedOverride("process.http_listen", options_.http),
      QuotedOverride("security.cluster_secret_file", secret_file()),
      "drain_grace_seconds=0",  // there is no load balancer to wait for
  };
  settings.insert(settings.end(), options_.router_set.begin(), options_.router_set.end());
  for (const auto& setting : settings) command.insert(command.end(), {"--set", setting});
  return Launch("router", std::move(command));
}

Status LocalCluster::LaunchWorker(const WorkerPlan& plan) {
  std::vector<std::string> command = {options_.binary_folder + "/baton-" + plan.role};
  std::vector<std::string> settings = {
      QuotedOverride("worker_id", plan.name),
      QuotedOverride("model.path", options_.model),
      fmt::format("routers=[\"{}\"]", router().addresses.at("workers")),
      QuotedOverride("security.cluster_secret_file", secret_file()),
      fmt::format("engine.threads={}", options_.threads),
  };
  settings.insert(settings.end(), plan.settings.begin(), plan.settings.end());
  settings.insert(settings.end(), options_.worker_set.begin(), options_.worker_set.end());
  if (plan.role == "decode") {
    settings.insert(settings.end(), options_.decode_set.begin(), options_.decode_set.end());
  }
  for (const auto& setting : settings) command.insert(command.end(), {"--set", setting});
  return Launch(plan.name, std::move(command));
}

std::string LocalCluster::EndOfLog(const std::string& name) const {
  if (options_.log_folder.empty()) return "";
  const std::string path = fmt::format("{}/{}.log", options_.log_folder, name);
  return fmt::format("; its log {} ends with:{}", path, LastLines(path));
}

Status LocalCluster::Explain(const ClusterMember& member, const Status& status) const {
  return MakeStatus(status.code(), "{}: {}{}", member.name, Message(status), EndOfLog(member.name));
}

Status LocalCluster::WaitReady(ClusterMember& member, Time deadline) {
  auto addresses = member.process->WaitReady(deadline - Now());
  if (!addresses.ok()) return Explain(member, addresses.status());
  member.addresses = *std::move(addresses);
  const char* const needed[] = {"http", "grpc", "workers", "admin"};
  const size_t count = &member == &router() ? 4 : 1;
  for (size_t i = 0; i < count; ++i) {
    if (!member.addresses.contains(needed[i])) {
      return Explain(
          member,
          MakeStatus(StatusCode::kInternal, "its line `ready` has no address \"{}\"", needed[i]));
    }
  }
  return OkStatus();
}

Status LocalCluster::AddWorker(const WorkerPlan& plan, Duration limit) {
  BATON_RETURN_IF_ERROR(LaunchWorker(plan));
  return WaitReady(members_.back(), Now() + limit);
}

Status LocalCluster::WaitJoined(int workers, Duration limit) {
  const Time deadline = Now() + limit;
  BATON_ASSIGN_OR_RETURN(const RouterEndpoint endpoint,
                         EndpointOf(admin(), options_.operators, kOperatorKeyFile));
  ClusterClient client(endpoint);
  while (true) {
    const auto status = client.GetStatus();
    int ready = 0;
    std::string refused;
    if (status.ok()) {
      for (const auto& worker : status->workers) ready += worker.state == "ready" ? 1 : 0;
      if (ready == workers) return OkStatus();
      for (const auto& join : status->refused) {
        refused += fmt::format("; {} was refused: {}", join.worker, join.reason);
      }
    }
    for (const ClusterMember& member : members_) {
      const int exit = member.process->WaitExit(Duration(0)).value_or(0);
      if (exit == 0) continue;
      return MakeStatus(StatusCode::kUnavailable,
                        "before all workers had joined, {} ended with status {}{}",
                        member.name,
                        exit,
                        EndOfLog(member.name));
    }
    if (Now() >= deadline) {
      return MakeStatus(StatusCode::kDeadlineExceeded,
                        "{} of {} workers joined within {:.1f} s{}",
                        ready,
                        workers,
                        ToSeconds(limit),
                        refused);
    }
    std::this_thread::sleep_for(kJoinPoll);
  }
}

ClusterMember* LocalCluster::Find(const std::string& name) {
  for (auto& member : members_) {
    if (member.name == name) return &member;
  }
  return nullptr;
}

bool LocalCluster::Drain(Duration limit) {
  const Time deadline = Now() + limit;
  router().process->Signal(SIGTERM);
  bool clean = router().process->WaitExit(deadline - Now()) == 0;
  for (size_t i = 1; i < members_.size(); ++i) members_[i].process->Signal(SIGTERM);
  for (size_t i = 1; i < members_.size(); ++i) {
    clean = members_[i].process->WaitExit(deadline - Now()) == 0 && clean;
  }
  return clean;
}

std::vector<std::string> LocalCluster::TakeExits() {
  std::vector<std::string> ended;
  for (const auto& member : members_) {
    const auto status = member.process->WaitExit(Duration(0));
    if (!status.has_value() || std::exchange(reported_[member.name], true)) continue;
    ended.push_back(
        fmt::format("{} ended with status {}{}", member.name, *status, EndOfLog(member.name)));
  }
  return ended;
}

}  // namespace baton
