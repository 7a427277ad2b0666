#include "cli/reachability.h"

namespace baton {

Status ExplainUnreachable(const Status& status,
                          const std::string& address,
                          const RouterPort& port) {
  if (Message(status).find("http1.x") != std::string_view::npos) {
    return MakeStatus(StatusCode::kUnavailable,
                      "{} is an HTTP port, not a gRPC port of a router; pass the port that the "
                      "router's line `ready` calls \"{}\", with {} host:port",
                      address,
                      port.name,
                      port.flag);
  }
  // gRPC's status for a service that the server does not have. Our own errors have a message.
  if (status.code() == StatusCode::kUnimplemented) {
    return MakeStatus(
        StatusCode::kUnavailable,
        "{} is a gRPC port, but not the router's port for this service; it may be another one of "
        "its ports, or a worker's; pass the port that the router's line `ready` calls \"{}\", with "
        "{} host:port",
        address,
        port.name,
        port.flag);
  }
  if (status.code() == StatusCode::kUnauthenticated) {
    return MakeStatus(StatusCode::kUnauthenticated,
                      "{}: {}; pass a file with a key as --key-file",
                      address,
                      Message(status));
  }
  constexpr std::string_view kTransportWords[] = {"failed to connect",
                                                  "Connection refused",
                                                  "DNS resolution failed",
                                                  "Deadline Exceeded",
                                                  "connections to all backends failing",
                                                  "empty address list"};
  for (const auto word : kTransportWords) {
    if (Message(status).find(word) == std::string_view::npos) continue;
    return MakeStatus(StatusCode::kUnavailable,
                      "no router answers at {} ({}); start a cluster with `baton up`, or pass the "
                      "port that a router's line `ready` calls \"{}\", with {} host:port",
                      address,
                      Message(status),
                      port.name,
                      port.flag);
  }
  return status;
}

}  // namespace baton
