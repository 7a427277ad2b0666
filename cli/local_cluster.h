#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/router_endpoint.h"
#include "cli/temporary_secret_file.h"
#include "cli/worker_plan.h"
#include "common/app/child_process.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

struct LocalClusterOptions {
  std::string binary_folder;  // contains baton-router, baton-prefill and baton-decode
  std::string log_folder;     // gets one file per process; must exist; empty: log to our stderr
  std::string model;          // path of the model
  WorkerCounts workers;
  int threads = 0;                     // engine.threads of each worker; 0: its default
  std::string listen = "127.0.0.1:0";  // gRPC for clients
  std::string admin = "127.0.0.1:0";   // gRPC for operators
  std::string http = "127.0.0.1:0";
  EndpointFlags operators = {};         // how to speak to `admin`: TLS, and the key if it needs one
  std::string secret_file;              // the cluster's secret; empty: a new one
  std::vector<std::string> router_set;  // more arguments for --set of the router
  std::vector<std::string> worker_set;  // more arguments for --set of all workers
  std::vector<std::string> decode_set;  // more arguments for --set of decode workers
};

// One process of a local cluster.
struct ClusterMember {
  std::string name;  // "router", "prefill-0", "decode-1"; also the worker id
  std::map<std::string, std::string> addresses;
  std::unique_ptr<ChildProcess> process;
};

// A router and workers as processes on this machine, with free ports. The processes end with this
// object. For the main thread (see ChildProcess).
class LocalCluster final {
 public:
  // Starts all processes and waits until every worker has joined. Errors name the process that
  // failed, its log file, and the last lines of that file.
  static StatusOr<std::unique_ptr<LocalCluster>> Start(const LocalClusterOptions& options,
                                                       Duration limit);

  ClusterMember& router() { return members_.front(); }
  std::vector<ClusterMember>& members() { return members_; }
  // The file with the cluster's secret, which lasts as long as this object, if it made the file.
  const std::string& secret_file() const {
    return own_secret_ == nullptr ? options_.secret_file : own_secret_->path();
  }
  // The member with this name; null when there is none.
  ClusterMember* Find(const std::string& name);
  const std::string& server() const { return members_.front().addresses.at("grpc"); }
  const std::string& admin() const { return members_.front().addresses.at("admin"); }

  // Starts another worker and waits until it is ready.
  Status AddWorker(const WorkerPlan& plan, Duration limit);
  // Waits until the router reports exactly `workers` ready workers. Errors: DeadlineExceeded, with
  // the joins that the router refused; Unavailable when a process exits with a failure meanwhile.
  Status WaitJoined(int workers, Duration limit);

  // Sends SIGTERM to the router, then to the workers, so that running requests finish. True when
  // all processes exited with status 0 within `limit`.
  bool Drain(Duration limit);

  // One text for each member that exited since the last call: "prefill-0 ended with status 137",
  // with the last lines of its log. A drained worker exits with status 0.
  std::vector<std::string> TakeExits();

 private:
  explicit LocalCluster(const LocalClusterOptions& options) : options_(options) {}
  Status Launch(const std::string& name, std::vector<std::string> command);
  Status LaunchRouter();
  Status LaunchWorker(const WorkerPlan& plan);
  Status WaitReady(ClusterMember& member, Time deadline);
  // Waits for the members from index `ready` on; then sets `ready` to the number of members.
  Status WaitAllReady(size_t& ready, Time deadline);
  // "; its log FILE ends with:" and the last lines of the log.
  std::string EndOfLog(const std::string& name) const;
  Status Explain(const ClusterMember& member, const Status& status) const;

  const LocalClusterOptions options_;
  std::unique_ptr<TemporarySecretFile> own_secret_;
  std::vector<ClusterMember> members_;  // the router first
  std::map<std::string, bool> reported_;
};

}  // namespace baton
