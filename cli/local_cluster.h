#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/worker_plan.h"
#include "common/app/child_process.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

struct LocalClusterOptions {
  std::string binary_folder;  // of baton-router, baton-prefill, baton-decode
  std::string log_folder;     // one file a process; must exist; empty: all on our stderr
  std::string model;          // path
  WorkerCounts workers;
  int threads = 0;                     // of each worker; 0: its default
  std::string listen = "127.0.0.1:0";  // gRPC for clients
  std::string admin = "127.0.0.1:0";   // gRPC for operators
  std::string http = "127.0.0.1:0";
  std::vector<std::string> router_set;  // further --set of the router
  std::vector<std::string> worker_set;  // further --set of all workers
  std::vector<std::string> decode_set;  // further --set of decode workers
};

// One process of a local cluster.
struct ClusterMember {
  std::string name;  // "router", "prefill-0", "decode-1": also its worker id
  std::map<std::string, std::string> addresses;
  std::unique_ptr<ChildProcess> process;
};

// A router and workers as processes of this machine, with free ports. They end with it. For the
// main thread (see ChildProcess).
class LocalCluster final {
 public:
  // Starts all and waits until every worker has joined. Errors name the process that failed, its
  // log file, and that file's last lines.
  static StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options,
                                                       Duration limit);

  ClusterMember& router() { return members_.front(); }
  std::vector<ClusterMember>& members() { return members_; }
  // The member called `name`; null when there is none.
  ClusterMember* Find(const std::string& name);
  const std::string& server() const { return members_.front().addresses.at("grpc"); }
  const std::string& admin() const { return members_.front().addresses.at("admin"); }

  // Starts another worker and waits until it is ready.
  Status AddWorker(const WorkerPlan& plan, Duration limit);
  // Waits until the router counts exactly `workers` that are ready. Errors: DeadlineExceeded, with
  // the joins that the router refused; Unavailable when a process ended with a failure meanwhile.
  Status WaitJoined(int workers, Duration limit);

  // SIGTERM to the router, then to the workers: running requests finish. True when all ended with
  // status 0 within `limit`.
  bool Drain(Duration limit);

  // "prefill-0 ended with status 137", with the last lines of its log, for each member that ended
  // since the last call; a drained worker ends with status 0.
  std::vector<std::string> TakeObituaries();

 private:
  explicit LocalCluster(const LocalClusterOptions& options) : options_(options) {}
  Status Launch(const std::string& name, std::vector<std::string> command);
  Status LaunchRouter();
  Status LaunchWorker(const WorkerPlan& plan);
  Status WaitReady(ClusterMember& member, Time deadline);
  // Of those from `ready` on, which then counts all.
  Status WaitAllReady(size_t& ready, Time deadline);
  // "; its log FILE ends with:" and the lines.
  std::string EndOfLog(const std::string& name) const;
  Status Explain(const ClusterMember& member, const Status& status) const;

  const LocalClusterOptions options_;
  std::vector<ClusterMember> members_;  // the router first
  std::map<std::string, bool> mourned_;
};

}  // namespace baton
