#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/planner.h"
#include "kvtransfer/transport.h"

namespace baton {

// A transport at which every local shard is registered.
struct BoundTransport {
  std::string name;
  std::unique_ptr<Transport> transport;
  std::vector<std::unique_ptr<Region>> regions;  // by shard; destroyed before the transport
};

struct BoundTransports {
  std::vector<BoundTransport> usable;  // in order of preference; at least one
  std::string unusable;                // the names of the others, each with its reason; or empty
};

// The transports that options.transport allows, divided by whether they can register the arenas.
// With require_transport: only that transport, or its error.
StatusOr<BoundTransports> BindTransports(const KvTransferOptions& options);

// A link and the transport that carries it.
struct LinkRoute {
  KvLink link;
  size_t transport = 0;  // index into the bound transports
  KvEndpoint endpoint;
  // The names of the transports before it, each with the reason why it does not reach the shard.
  std::string not_taken;
};

// The links to a peer (PlanLinks), each with the first transport that reaches the peer's
// shard. May be called from any thread. FailedPrecondition or InvalidArgument if a shard cannot be
// filled or reached; the message then gives the reason for each transport.
StatusOr<std::vector<LinkRoute>> PlanRoutes(const KvTransferOptions& options,
                                            const std::vector<BoundTransport>& transports,
                                            const Hello& theirs);

}  // namespace baton
