#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/app/service.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/config/config.h"

namespace baton {

struct ServiceInfo {
  std::string name;     // of the binary: "baton-router"
  std::string summary;  // one line for --help
};

// The flag that makes a worker's program one rank of a group that another process leads; its value
// is the descriptor of the socket to the leader. The leader passes it; it is not for users.
inline constexpr std::string_view kRankSocketFlag = "rank-socket";

// The exit status of a process that cannot start because of `error`: 2 for a wrong setting
// (InvalidArgument), for example one that does not fit the model; else 1.
int ExitStatusOf(const Status& error);

// Runs this process until its end and returns the exit status, if it is such a rank or another rank
// than 0 of an mpirun; else returns nothing. `socket` is not valid without the flag.
using RunRankFunction = std::function<std::optional<int>(UniqueFd socket)>;

// The life cycle of each of Baton's processes: flags and configuration → log → metrics and HTTP →
// service → the line `ready {"http":"127.0.0.1:8080",…}` on stdout → SIGTERM or SIGINT → drain →
// stop. A second signal, or a service that has finished or failed, stops the process without a
// further drain. Returns the exit status: 0; 1 when the service could not start or has failed; 2
// for wrong flags or configuration, also when only the service finds it (InvalidArgument).
//
// `config` is an empty message of the process' configuration type with a field `process`
// (config.proto's ProcessConfig) and a field `security`; it is filled before `start` is called.
// `run_rank` is called before `start` and may be the whole life of the process.
int RunService(const ServiceInfo& info,
               int argc,
               char** argv,
               google::protobuf::Message& config,
               const std::function<StatusOr<std::unique_ptr<Service>>(AppContext&)>& start,
               const RunRankFunction& run_rank = {});

// RunService for a configuration type and the function that starts its service:
//   return RunService<config::RouterConfig>({"baton-router", "…"}, argc, argv, StartRouter);
template <class Config>
int RunService(const ServiceInfo& info,
               int argc,
               char** argv,
               StatusOr<std::unique_ptr<Service>> (*start)(const Config&, AppContext&),
               std::optional<int> (*run_rank)(const Config&, UniqueFd socket) = nullptr) {
  Config config;
  RunRankFunction rank;
  if (run_rank != nullptr) {
    rank = [&](UniqueFd socket) { return run_rank(config, std::move(socket)); };
  }
  return RunService(
      info, argc, argv, config, [&](AppContext& context) { return start(config, context); }, rank);
}

}  // namespace baton
