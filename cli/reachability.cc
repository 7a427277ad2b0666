#include "cli/reachability.h"

namespace baton {

Status ExplainUnreachable(const Status& status, const std::string& address) {
  constexpr std::string_view kTransportWords[] = {"failed to connect",
                                                  "Connection refused",
                                                  "DNS resolution failed",
                                                  "Deadline Exceeded",
                                                  "connections to all backends failing",
                                                  "empty address list"};
  for (const auto word : kTransportWords) {
    if (Message(status).find(word) == std::string_view::npos) continue;
    return MakeStatus(StatusCode::kUnavailable,
                      "no router answers at {} ({}); start a cluster with `baton up`, or name "
                      "another router with --server host:port",
                      address,
                      Message(status));
  }
  return status;
}

}  // namespace baton
