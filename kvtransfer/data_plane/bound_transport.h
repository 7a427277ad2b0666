#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/data_plane/planner.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transport.h"

namespace baton {

// A transport at which every local shard is registered.
struct BoundTransport {
  std::string name;
  std::unique_ptr<Transport> transport;
  // By shard, null where the arena is on another host; destroyed before the transport.
  std::vector<std::unique_ptr<Region>> regions;
  // The names of the transports that would be preferred to this one, but less than the bound
  // transport before it, and cannot be used in this process, each with the reason; or empty.
  std::string unusable;
};

// The transports that options.transport allows and that can register the arenas, in order of
// preference; at least one. With require_transport: only that transport, or its error.
StatusOr<std::vector<BoundTransport>> BindTransports(const KvTransferOptions& options);

// A link and the transport that carries it.
struct LinkRoute {
  static constexpr size_t kElsewhere = SIZE_MAX;
  KvLink link;
  // Index into the bound transports; kElsewhere: the link begins at a shard on another host.
  size_t transport = 0;
  KvEndpoint endpoint;
  // The names of the preferred transports, each with the reason why it does not reach the shard.
  std::string not_taken;
};

// The links to a peer (PlanLinks), each with the first transport that reaches the peer's
// shard. May be called from any thread. FailedPrecondition or InvalidArgument if a shard cannot be
// filled or reached; the message then gives the reason for each transport.
StatusOr<std::vector<LinkRoute>> PlanRoutes(const KvTransferOptions& options,
                                            const std::vector<BoundTransport>& transports,
                                            const Hello& theirs);

}  // namespace baton
