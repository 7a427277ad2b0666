#include "kvtransfer/bound_transport.h"

#include <algorithm>
#include <utility>

#include "kvtransfer/make_transport.h"

namespace baton {
namespace {

StatusOr<BoundTransport> Bind(const std::string& name, const KvTransferOptions& options) {
  BoundTransport bound;
  bound.name = name;
  BATON_ASSIGN_OR_RETURN(
      bound.transport,
      options.make_transport ? options.make_transport(name) : MakeTransport(name, options));
  for (const LocalShard& shard : options.shards) {
    BATON_ASSIGN_OR_RETURN(auto region, bound.transport->Register(*shard.arena));
    bound.regions.push_back(std::move(region));
  }
  return bound;
}

const KvEndpoint* FindEndpoint(const KvShardInfo& shard, const std::string& transport) {
  for (const KvEndpoint& endpoint : shard.endpoints) {
    if (endpoint.transport == transport) return &endpoint;
  }
  return nullptr;
}

StatusOr<LinkRoute> PlanRoute(const std::vector<BoundTransport>& transports,
                              const Hello& theirs,
                              const KvLink& link) {
  const KvShardInfo& shard = theirs.shards[link.destination];
  std::string why;
  for (size_t i = 0; i < transports.size(); ++i) {
    const KvEndpoint* endpoint = FindEndpoint(shard, transports[i].name);
    const Status reached =
        endpoint == nullptr
            ? MakeStatus(StatusCode::kUnavailable, "the peer does not offer this transport")
            : transports[i].transport->Reaches(endpoint->descriptor);
    if (reached.ok()) return LinkRoute{link, i, *endpoint, why};
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", transports[i].name, Message(reached));
  }
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "no KV transport reaches shard {} of worker {} ({})",
                    link.destination,
                    theirs.worker,
                    why);
}

}  // namespace

StatusOr<BoundTransports> BindTransports(const KvTransferOptions& options) {
  const std::string& required = options.transport.require_transport;
  BoundTransports transports;
  if (!required.empty()) {
    BATON_ASSIGN_OR_RETURN(BoundTransport bound, Bind(required, options));
    transports.usable.push_back(std::move(bound));
    return transports;
  }
  Status last = InvalidArgument("KV transfer: no transport is named");
  for (const std::string& name : options.transport.names) {
    StatusOr<BoundTransport> bound = Bind(name, options);
    if (bound.ok()) {
      transports.usable.push_back(*std::move(bound));
      continue;
    }
    last = Annotate(bound.status(), fmt::format("KV transport {}", name));
    transports.unusable += fmt::format(
        "{}{}: {}", transports.unusable.empty() ? "" : "; ", name, Message(bound.status()));
    if (options.log_info) options.log_info(fmt::format("not used: {}", Message(last)));
  }
  if (transports.usable.empty()) return last;
  return transports;
}

StatusOr<std::vector<LinkRoute>> PlanRoutes(const KvTransferOptions& options,
                                            const std::vector<BoundTransport>& transports,
                                            const Hello& theirs) {
  std::vector<KvShard> ours;
  for (const LocalShard& shard : options.shards) ours.push_back(shard.shard);
  BATON_ASSIGN_OR_RETURN(const std::vector<KvLink> links,
                         PlanLinks(options.layout, ours, ShardsOf(theirs)));
  std::vector<LinkRoute> routes;
  for (const KvLink& link : links) {
    // Links to the same shard are neighbours.
    if (!routes.empty() && routes.back().link.destination == link.destination) {
      routes.push_back(routes.back());
      routes.back().link = link;
      continue;
    }
    BATON_ASSIGN_OR_RETURN(LinkRoute route, PlanRoute(transports, theirs, link));
    routes.push_back(std::move(route));
  }
  return routes;
}

}  // namespace baton
