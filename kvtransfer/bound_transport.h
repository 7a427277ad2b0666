#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/planner.h"
#include "kvtransfer/transport.h"

namespace baton {

// A transport with every local shard registered.
struct BoundTransport {
  std::string name;
  std::unique_ptr<Transport> transport;
  std::vector<std::unique_ptr<Region>> regions;  // by shard; gone before the transport
};

// InvalidArgument naming what is wrong: layout, shards, arenas too small for their blocks, times.
Status ValidateOptions(const KvTransferOptions& options);

// The transports that options.transport allows and the arenas permit, in order of preference; at
// least one. With require_transport, that one or its error.
StatusOr<std::vector<BoundTransport>> BindTransports(const KvTransferOptions& options);

// This side's HELLO. With `listen`, every transport starts to listen and the endpoints are in it.
StatusOr<Hello> MakeHello(const KvTransferOptions& options,
                          std::vector<BoundTransport>& transports,
                          bool listen);

// How a link's bytes travel.
struct LinkRoute {
  KvLink link;
  size_t transport = 0;  // index into the bound transports
  KvEndpoint endpoint;
};

// The links to a peer, one for each layer group, and for each the first transport that reaches it.
// May be called from any thread. FailedPrecondition or InvalidArgument when a shard cannot be
// filled or reached; then the message says why each transport does not.
StatusOr<std::vector<LinkRoute>> PlanRoutes(const KvTransferOptions& options,
                                            const std::vector<BoundTransport>& transports,
                                            const Hello& theirs);

// The KV shards of a HELLO.
std::vector<KvShard> ShardsOf(const Hello& hello);

}  // namespace baton
