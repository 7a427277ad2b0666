#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/app/service.h"
#include "common/config/config.h"

namespace baton {

struct ServiceInfo {
  std::string name;     // of the binary: "baton-router"
  std::string summary;  // one line for --help
};

// The life cycle of each of Baton's processes: flags and configuration → log → metrics and HTTP →
// service → the line `ready {"http":"127.0.0.1:8080",…}` on stdout → SIGTERM or SIGINT → drain →
// stop. A second signal, or a service that has finished or failed, stops the process without a
// further drain. Returns the exit status: 0; 1 when the service could not start or has failed; 2
// for wrong flags or configuration.
//
// `config` is an empty message of the process' configuration type with a field `process`
// (config.proto's ProcessConfig); it is filled before `start` is called.
int RunService(const ServiceInfo& info,
               int argc,
               char** argv,
               google::protobuf::Message& config,
               const std::function<StatusOr<std::unique_ptr<Service>>(AppContext&)>& start);

// RunService for a configuration type and the function that starts its service:
//   return RunService<config::RouterConfig>({"baton-router", "…"}, argc, argv, StartRouter);
template <class Config>
int RunService(const ServiceInfo& info,
               int argc,
               char** argv,
               StatusOr<std::unique_ptr<Service>> (*start)(const Config&, AppContext&)) {
  Config config;
  return RunService(
      info, argc, argv, config, [&](AppContext& context) { return start(config, context); });
}

}  // namespace baton
